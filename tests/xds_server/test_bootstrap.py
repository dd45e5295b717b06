from __future__ import annotations

import yaml

from xds_server.bootstrap import render_bootstrap


def render(**changed: object) -> dict:
    values = {"node_id": "gw-1", "cluster": "gateways", "xds_host": "10.0.0.1", "xds_port": 18000, **changed}
    return yaml.safe_load(render_bootstrap(**values))


def test_envoy_is_told_who_it_is_and_where_its_configuration_comes_from():
    made = render()
    assert made["node"] == {"id": "gw-1", "cluster": "gateways"}
    assert made["dynamic_resources"]["ads_config"]["api_type"] == "DELTA_GRPC"
    (cluster,) = made["static_resources"]["clusters"]
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert endpoint["endpoint"]["address"]["socket_address"] == {"address": "10.0.0.1", "port_value": 18000}


def test_the_admin_interface_is_on_loopback_unless_said_otherwise():
    assert render()["admin"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 19000}


def test_a_server_given_by_name_is_looked_up():
    assert render()["static_resources"]["clusters"][0]["type"] == "STATIC"
    assert render(xds_host="controlplane")["static_resources"]["clusters"][0]["type"] == "STRICT_DNS"


def test_no_value_can_break_out_of_its_place():
    name = 'a"\n  cluster: {evil: true} # ${x}'
    assert render(node_id=name)["node"] == {"id": name, "cluster": "gateways"}
