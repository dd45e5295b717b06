"""The command line that becomes Envoy."""

from __future__ import annotations

from dataclasses import replace

import yaml

from controlplane.config.settings import EnvoySettings, Settings
from headrace.run_envoy import envoy_argv


def test_envoy_gets_its_whole_bootstrap_as_an_argument_and_leaves_no_file() -> None:
    settings = Settings(cluster="prod", envoy=EnvoySettings(admin="[::1]:19001", concurrency=3, log_level="info"))
    settings = replace(settings, control_plane=replace(settings.control_plane, xds="0.0.0.0:18001"))
    argv = envoy_argv(settings)
    bootstrap = yaml.safe_load(argv[argv.index("--config-yaml") + 1])
    assert bootstrap["node"]["cluster"] == "prod"
    assert bootstrap["admin"]["address"]["socket_address"] == {"address": "::1", "port_value": 19001}
    assert "'port_value': 18001" in str(bootstrap)
    assert "'address': '127.0.0.1'" in str(bootstrap)
    assert argv[argv.index("--concurrency") + 1] == "3"
    assert argv[argv.index("--log-level") + 1] == "info"
    assert "--concurrency" not in envoy_argv(Settings())


def test_envoy_is_quiet_about_its_own_api_unless_more_is_asked_for() -> None:
    assert "misc:error" in envoy_argv(Settings())
    assert "misc:error" not in envoy_argv(Settings(envoy=EnvoySettings(log_level="debug")))
