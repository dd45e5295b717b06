"""Good files give settings, bad ones every fault with its line."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from controlplane.config.load import load, load_policy
from controlplane.config.report import MAX_FAULTS
from controlplane.config.settings import MIB, Settings
from controlplane.errors import ConfigurationError
from controlplane.policy.qos import Measure
from controlplane.policy.settings import Policy
from controlplane.policy.words import DEFAULT_WORDS, Topic, WordList


def faults_of(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(text, "h.yaml")
    return list(caught.value.faults)


@pytest.mark.parametrize(
    "text", ["", "\n", "# nothing\n", "---\n", "{}", "null", "\ufeff", "gateway:\npolicy:\n  estimation:\n"]
)
def test_a_file_that_states_nothing_gives_the_defaults(text: str) -> None:
    assert load(text, "h.yaml") == Settings()


def test_what_a_file_states_replaces_only_that() -> None:
    settings = load("gateway: {max_wait: 1m}\npolicy:\n  sensitivity:\n    weights: {seed: 25}\n", "h.yaml")
    defaults = Settings()
    assert settings.gateway == replace(defaults.gateway, max_wait=60.0)
    assert settings.policy.sensitivity.weights == replace(defaults.policy.sensitivity.weights, seed=25)
    assert settings.policy.estimation == defaults.policy.estimation


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30", 30),
        ("0.5", 0.5),
        ("1e1", 10),
        ("250ms", 0.25),
        ("30s", 30),
        ("1.5 s", 1.5),
        ("5m", 300),
        ("1h", 3600),
        ("'7'", 7),
    ],
)
def test_durations_are_seconds_or_have_a_unit(written: str, seconds: float) -> None:
    assert load(f"gateway: {{max_wait: {written}, stream_idle_timeout: 1d}}", "h.yaml").gateway.max_wait == seconds


@pytest.mark.parametrize(
    ("written", "size"),
    [("4096", 4096), ("64KiB", 65536), ("10MiB", 10 * MIB), ("1GiB", 1024 * MIB), ("1.5kB", 1500), ("2 MB", 2_000_000)],
)
def test_sizes_are_bytes_or_have_a_unit(written: str, size: int) -> None:
    assert load(f"gateway: {{max_body_bytes: {written}}}", "h.yaml").gateway.max_body_bytes == size


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:1", "'[::1]:8000'", "'localhost:0'", "gate-way_1.internal.:65535", "unix:/run/headrace/filter.sock"],
)
def test_addresses_may_be_names_ips_and_unix_sockets(address: str) -> None:
    assert load(f"ext_proc: {{listen: {address}}}", "h.yaml").ext_proc.listen == address.strip("'")


def test_anchors_and_aliases_work() -> None:
    settings = load("{caller: {control_planes: &all ['a:1', 'b:2']}, etcd: {endpoints: *all}}", "h.yaml")
    assert settings.etcd.endpoints == ("a:1", "b:2")


def test_words_that_yaml_1_1_takes_for_booleans_and_times_stay_words() -> None:
    text = "policy: {sensitivity: {words: [{topic: code, language: nb, words: [no, on, yes, 12:30, 2026-01-01]}]}}"
    assert load(text, "h.yaml").policy.sensitivity.words[0].words == ("no", "on", "yes", "12:30", "2026-01-01")


def test_a_word_list_replaces_the_default_one_of_its_topic_and_language_alone() -> None:
    first = DEFAULT_WORDS[0]
    entry = f"{{topic: {first.topic}, language: {first.language}, words: [mine]}}"
    words = load_policy(f"sensitivity: {{words: [{entry}]}}", "p.yaml").sensitivity.words
    assert words == (WordList(first.topic, first.language, ("mine",)), *DEFAULT_WORDS[1:])


def test_a_word_list_without_words_removes_the_default_one() -> None:
    first = DEFAULT_WORDS[0]
    text = f"sensitivity: {{words: [{{topic: {first.topic}, language: {first.language}}}]}}"
    assert load_policy(text, "p.yaml").sensitivity.words == DEFAULT_WORDS[1:]


def test_a_word_list_in_a_language_of_its_own_is_added() -> None:
    words = load("policy: {sensitivity: {words: [{topic: math, language: x, weak: [w]}]}}", "h.yaml").policy.sensitivity
    assert words.words == (WordList(Topic.MATH, "x", (), ("w",)), *DEFAULT_WORDS)


def test_a_policy_is_read_alone_as_its_section_is() -> None:
    policy = load_policy("default_model: m\n", "p.yaml")
    assert policy == replace(Policy(), default_model="m")
    assert load("policy:\n  default_model: m\n", "h.yaml").policy == policy


@pytest.mark.parametrize("text", ["", "# nothing\n", "null", "{}"])
def test_a_policy_without_any_setting_replaces_none(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_policy(text, "p.yaml")
    assert "headrace policy reset" in caught.value.faults[0]


def test_a_configuration_in_place_of_a_policy_is_told_apart() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_policy("# tuned\npolicy:\n  qos: {mode: enabled}\n", "p.yaml")
    assert caught.value.faults == (
        "p.yaml:2: this is a configuration; a policy is what stands under `policy:`, without that line",
    )


def test_faults_of_a_policy_alone_have_paths_without_the_section() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_policy("sensitivity:\n  hot_temperature: 9\nnonsense: 1\n", "p.yaml")
    assert caught.value.faults == (
        "p.yaml:2: sensitivity.hot_temperature: must be at most 2.0, not 9",
        "p.yaml:3: nonsense: is no setting; known here: "
        "default_model, sensitivity, estimation, formats, context_classes, thresholds, gain, selection, waiting, qos, "
        "sessions, tenants, composition, sla",
    )


ONE_FAULT = [
    # types
    ("cluster: 5", "1: cluster: must be text, not 5; put it in quotes if it is meant as text"),
    (
        "control_plane: {grpc: 50051}",
        "1: control_plane.grpc: '50051' must be host:port, such as 127.0.0.1:8000",
    ),
    ("cluster: ~", "1: cluster: must be text, not null; put it in quotes if it is meant as text"),
    ("cluster: My Fleet", "1: cluster: 'My Fleet' must be 1 to 63 of a-z, 0-9 and -, with no - at either end"),
    ("ext_proc:\n  workers: true", "2: ext_proc.workers: must be a whole number, not true"),
    ("ext_proc:\n  workers: 1.5", "2: ext_proc.workers: must be a whole number, not 1.5"),
    ("ext_proc:\n  workers: 0", "2: ext_proc.workers: must be at least 1, not 0"),
    ("policy:\n  context_classes: []", "2: policy.context_classes: must not be empty"),
    (
        "caller:\n  control_planes: 127.0.0.1:1",
        "2: caller.control_planes: must be a list, not '127.0.0.1:1'; write [] for none, [a, b] for two",
    ),
    ("control_plane: {auth: {insecure: yes}}", "1: control_plane.auth.insecure: must be true or false, not 'yes'"),
    ("gateway: 5", "1: gateway: must be a section with settings of its own, not 5"),
    ("gateway: [1]", "1: gateway: must be a section with settings of its own, not a list"),
    ("- 1\n", "1: must be a section with settings of its own, not a list"),
    ("hello", "1: must be a section with settings of its own, not 'hello'"),
    (
        "telemetry:\n\n  log_level: warn\n",
        "3: telemetry.log_level: must be one of debug, info, warning, error, not 'warn'; did you mean warning?",
    ),
    ("policy: {formats: {unknown: half}}", "1: policy.formats.unknown: must be one of full, quantized, not 'half'"),
    ("etcd: {data_dir: ''}", "1: etcd.data_dir: must not be empty"),
    (
        "policy: {estimation: {gamma: 1e999}}",
        "1: policy.estimation.gamma: must be a finite number",
    ),
    # quantities
    (
        "gateway:\n  max_wait: soon",
        "2: gateway.max_wait: 'soon' must be a duration; write seconds as a number, or a number with ms, s, m, h or d, "
        "such as 30s",
    ),
    ("gateway:\n  max_wait: -1", "2: gateway.max_wait: must be at least 0, not -1"),
    ("gateway:\n  route_timeout: 2d", "2: gateway.route_timeout: must be at most 86400, not '2d'"),
    (
        "gateway:\n  max_body_bytes: 10Mb",
        "2: gateway.max_body_bytes: '10Mb' must be a size; write bytes as a number, or a number with KiB, MiB, GiB, "
        "kB, MB or GB",
    ),
    ("gateway:\n  max_body_bytes: 1024.5B", "2: gateway.max_body_bytes: '1024.5B' must be a whole number of bytes"),
    # addresses
    ("gateway:\n  address: '10000'", "2: gateway.address: '10000' must be host:port, such as 127.0.0.1:8000"),
    (
        "gateway:\n  address: 127.0.0.1:99999",
        "2: gateway.address: '127.0.0.1:99999' has no such port; ports end at 65535",
    ),
    (
        "gateway:\n  address: ::1:80",
        "2: gateway.address: '::1:80' must be host:port with an IPv6 address in brackets, such as [::1]:8000",
    ),
    (
        "gateway:\n  address: 127.0.1:80",
        "2: gateway.address: '127.0.1:80' has no valid IPv4 address; write four numbers up to 255, "
        "such as 127.0.0.1:8000",
    ),
    (
        "gateway:\n  address: http://a:80",
        "2: gateway.address: 'http://a:80' must be host:port without a scheme, such as 127.0.0.1:8000",
    ),
    (
        "ext_proc:\n  listen: unix:run/f",
        "2: ext_proc.listen: 'unix:run/f' must have an absolute path, such as unix:/run/headrace/filter.sock",
    ),
    (
        "etcd:\n  endpoints:\n    - a:1\n    - a:0\n",
        "4: etcd.endpoints[1]: 'a:0' must have a port other than 0; this address is dialled, not listened on",
    ),
    (
        "etcd: {endpoints: ['0.0.0.0:1']}",
        "1: etcd.endpoints[0]: '0.0.0.0:1' cannot be dialled, it stands for all addresses of a machine; "
        "write the one to connect to",
    ),
    (
        "telemetry: {otlp_endpoint: 'http://user:hunter2@h:4317'}",
        "1: telemetry.otlp_endpoint: must not hold a user or password",
    ),
    (
        "etcd: {endpoints: ['https://user:hunter2@e:2379']}",
        "1: etcd.endpoints[0]: must be host:port with an IPv6 address in brackets, such as [::1]:8000",
    ),
    (
        "telemetry: {otlp_endpoint: 127.0.0.1:4317}",
        "1: telemetry.otlp_endpoint: '127.0.0.1:4317' must be a URL that begins with http:// or https://, "
        "such as http://127.0.0.1:4317",
    ),
    # names
    ("gateway:\n  adress: a:1", "2: gateway.adress: is no setting; did you mean address?"),
    ("heartbeat: 3s", "1: heartbeat: is no setting; did you mean control_plane.heartbeat?"),
    ("log_level: info", "1: log_level: is no setting; did you mean envoy.log_level or telemetry.log_level?"),
    ("envoy:\n  zone: a", "2: envoy.zone: is no setting; known here: admin, concurrency, max_heap, log_level"),
    (
        "ledger: {url: 'postgresql://headrace:hunter2@db/headrace'}",
        "1: ledger.url: must not hold a password; give password_file",
    ),
    (
        "ledger:\n  url: postgresql://headrace@db/headrace?sslmode=require",
        "2: ledger.url: takes no parameters but ?host=/folder, for a Unix socket",
    ),
    (
        "ledger: {url: 'postgresql://db/x'}",
        "1: ledger.url: 'postgresql://db/x' must name user and database, as postgresql://user@host/database",
    ),
    (
        "ledger: {url: 'postgresql://u@db:0/x'}",
        "1: ledger.url: must have a port other than 0; this address is dialled, not listened on",
    ),
    (
        "ledger: {url: 'postgresql://u@db/x?host=/run'}",
        "1: ledger.url: must have either a host or ?host=/folder, as postgresql://user@/database?host=/run/postgresql",
    ),
    (
        "ledger: {url: 'sqlite://'}",
        "1: ledger.url: 'sqlite://' must name a file, as sqlite:///ledger.sqlite or "
        "sqlite:////var/lib/headrace/ledger.sqlite",
    ),
    (
        "ledger: {url: 'mysql://h/x'}",
        "1: ledger.url: 'mysql://h/x' must be a URL such as sqlite:////var/lib/headrace/ledger.sqlite or "
        "postgresql://user@host/database",
    ),
    (
        "ledger:\n  password_file: secret",
        "2: ledger.password_file: is for a PostgreSQL named by ledger.url, and none is; name it or remove this",
    ),
    ("ledger: {retention: 5m}", "1: ledger.retention: must be at least 3600, not '5m'"),
    (
        "ext_proc:\n  session_store: {url: 'redis://user:hunter2@h:6379'}",
        "2: ext_proc.session_store.url: must not hold a user or password; give username and password_file",
    ),
    (
        "ext_proc:\n  session_store: {url: 'h:6379'}",
        "2: ext_proc.session_store.url: 'h:6379' must be a URL such as redis://host:6379/0, rediss:// for TLS, or "
        "unix:///run/valkey.sock",
    ),
    (
        "etcd:\n  password: hunter2",
        "2: etcd.password: is no setting; did you mean password_file? Secrets are read from files of their own",
    ),
    ("policy:\n- a", "1: policy: must be a section with settings of its own, not a list"),
    # YAML
    ("a:\n\tb: 1", "2: is not valid YAML: a tab; indent with spaces"),
    (
        "gateway:\n  address: a: b",
        "2: is not valid YAML: a second colon, or wrong indentation; put text that holds ': ' in quotes",
    ),
    (
        "gateway: {address: a:1\n",
        "2: is not valid YAML: expected ',' or '}', but got '<stream end>' while parsing a flow mapping that begins in "
        "line 1; check quotes, brackets and indentation",
    ),
    ("cluster: a\n---\ncluster: b", "2: begins a second document; keep to one document in a file"),
    ("cluster: a\n\ncluster: b", "3: cluster: is set twice, first in line 1; remove one of them"),
    (
        "gateway:\n  max_wait: 1\n  max_wait: 1",
        "3: gateway.max_wait: is set twice, first in line 2; remove one of them",
    ),
    (
        "cluster: !!str x",
        "1: cluster: has the tag tag:yaml.org,2002:str; tags are not supported, write the value without it",
    ),
    ("cluster: a\x00", "1: holds the character U+0000, which YAML does not allow; remove it or write it as an escape"),
    ('cluster: "\\UFFFFFFFF"', "1: is not valid YAML: an escape or number is out of range; correct it"),
    # rules
    (
        "control_plane:\n  lease: 4s\n  heartbeat: 2s",
        "3: control_plane.heartbeat: 2 s must be less than half of control_plane.lease (4 s), else one lost report "
        "ends a node session; shorten the heartbeat or lengthen the lease",
    ),
    (
        "control_plane:\n  lease: 2s",
        "2: control_plane.heartbeat: 1 s must be less than half of control_plane.lease (2 s), else one lost report "
        "ends a node session; shorten the heartbeat or lengthen the lease",
    ),
    (
        "control_plane:\n  lease: 2500ms",
        "2: control_plane.lease: 2.5 s must be whole seconds, as leases of etcd are",
    ),
    (
        "gateway:\n  stream_idle_timeout: 10s",
        "2: gateway.max_wait: 30 s must be less than gateway.stream_idle_timeout (10 s), else Envoy gives up requests "
        "that still wait; shorten the wait or lengthen the timeout",
    ),
    (
        "envoy:\n  admin: 0.0.0.0:19000",
        "2: envoy.admin: other machines reach 0.0.0.0:19000, and Envoy's administration has no password; "
        "listen on 127.0.0.1 and forward the port where you need it",
    ),
    (
        "control_plane:\n  tls:\n    key_file: k",
        "3: control_plane.tls.key_file: needs control_plane.tls.cert_file too; give both or neither",
    ),
    (
        "caller:\n  cert_file: c\n  key_file: k",
        "2: caller.cert_file: needs caller.ca_file, which turns TLS on; name the authority that signed the control "
        "planes' certificates",
    ),
    (
        "control_plane:\n  xds: 0.0.0.0:18000",
        "2: control_plane.xds: 0.0.0.0:18000 stands for all addresses of the machine and Envoy cannot connect to it; "
        "name the address that Envoy reaches in control_plane.xds_advertise",
    ),
    (
        "control_plane:\n  tls:\n    client_ca_file: k",
        "3: control_plane.tls.client_ca_file: asks clients for certificates over TLS, which is off; "
        "give control_plane.tls.cert_file and key_file",
    ),
    (
        "etcd:\n  endpoints: ['e:1']\n  username: u",
        "3: etcd.username: needs etcd.password_file too; give both or neither",
    ),
    (
        "ext_proc:\n  session_store:\n    ca_file: ca.pem",
        "3: ext_proc.session_store.ca_file: is for a store named by ext_proc.session_store.url, and none is; "
        "name it or remove this",
    ),
    (
        "ext_proc:\n  session_store:\n    url: unix:///run/v.sock?ssl_cert_reqs=none",
        "3: ext_proc.session_store.url: 'unix:///run/v.sock?ssl_cert_reqs=none' must end with the path, or a "
        "database's number after it, such as ?db=1",
    ),
    (
        "ext_proc:\n  session_store:\n    url: redis://h\n    username: u",
        "4: ext_proc.session_store.username: needs ext_proc.session_store.password_file too; give it or remove this",
    ),
    (
        "ext_proc:\n  workers: 2",
        "2: ext_proc.workers: 2 filter workers would each keep a format tier of their own for a session; name a Redis "
        "or Valkey in ext_proc.session_store.url, run one worker, or look for no sessions: "
        "policy.sessions: {headers: [], body_fields: []}",
    ),
    (
        "ext_proc:\n  advertise: ['a:1', 'b:1', 'c:1']",
        "2: ext_proc.advertise: 3 filter workers would each keep a format tier of their own for a session; name a "
        "Redis or Valkey in ext_proc.session_store.url, run one worker, or look for no sessions: "
        "policy.sessions: {headers: [], body_fields: []}",
    ),
    (
        "ext_proc:\n  session_store:\n    url: redis://h\n    ca_file: ca.pem",
        "4: ext_proc.session_store.ca_file: is for TLS, and redis://h is none; write rediss:// there or remove this",
    ),
    (
        "etcd:\n  endpoints: ['http://e:1', 'https://f:1']",
        "2: etcd.endpoints: http://e:1 is plain text and https://f:1 is TLS; give all the same scheme",
    ),
    (
        "etcd:\n  endpoints: ['http://e:1']\n  ca_file: c",
        "3: etcd.ca_file: is for TLS, and http://e:1 is plain text; write https:// there or remove this",
    ),
    (
        "etcd: {endpoints: ['etcd://e:1']}",
        "1: etcd.endpoints[0]: 'etcd://e:1' must be host:port, with http:// or https:// in front if you like",
    ),
    (
        "etcd:\n  endpoints: ['e:1']\n  data_dir: d",
        "3: etcd.data_dir: is for the etcd that Headrace starts, and etcd.endpoints name another; remove one of them",
    ),
    (
        "etcd:\n  ca_file: c",
        "2: etcd.ca_file: is for an etcd named by etcd.endpoints, and none is; name its members or remove this",
    ),
    (
        "ext_proc:\n  listen: '[::]:9002'",
        "2: ext_proc.listen: [::]:9002 stands for all addresses of the machine and Envoy cannot connect to it; "
        "name the address that Envoy reaches in ext_proc.advertise",
    ),
    (
        "gateway:\n  address: 127.0.0.1:9090",
        "2: control_plane.metrics: 127.0.0.1:9090 is taken by gateway.address (127.0.0.1:9090); give each its own port",
    ),
    (
        "gateway:\n  address: 0.0.0.0:9090",
        "2: control_plane.metrics: 127.0.0.1:9090 is taken by gateway.address (0.0.0.0:9090); give each its own port",
    ),
    (
        "etcd: {endpoints: ['e:1', 'f:1', 'e:1']}",
        "1: etcd.endpoints[2]: e:1 is named twice in etcd.endpoints; remove one",
    ),
    # rules of the policy
    (
        "policy:\n  sensitivity:\n    sensitive_at: -100",
        "3: policy.sensitivity.tolerant_at: must be below sensitivity.sensitive_at",
    ),
    (
        "policy:\n  formats:\n    full: [fp16, int8]",
        "2: policy.formats: int8 is in both tiers; leave it in one",
    ),
    (
        "policy:\n  context_classes:\n  - {name: a, max_context: 9}\n  - {name: b, max_context: 8}\n  - {name: c}",
        "2: policy.context_classes: max_context must grow from class to class",
    ),
    (
        'policy:\n  context_classes: [{name: "a\\r\\nb"}]',
        "2: policy.context_classes: the name 'a\\r\\nb' is a part of pools' names; use letters, digits, - _ and .",
    ),
    (
        "policy:\n  tenants: {header: 'x t'}",
        "2: policy.tenants.header: 'x t' is no name of a header",
    ),
    (
        "policy: {selection: {load: {\n  room_kv_cache_use: 0.99}}}",
        "2: policy.selection.load.room_kv_cache_use: must not be above overloaded_kv_cache_use",
    ),
    (
        "policy: {selection: {load: {\n  overloaded_kv_cache_use: 0.5}}}",
        "2: policy.selection.load.room_kv_cache_use: must not be above overloaded_kv_cache_use",
    ),
]


@pytest.mark.parametrize(("text", "fault"), ONE_FAULT)
def test_a_fault_is_named_with_its_line_and_what_to_do(text: str, fault: str) -> None:
    assert faults_of(text) == [f"h.yaml:{fault}"]


def test_all_faults_are_found_at_once_in_the_order_of_lines() -> None:
    faults = faults_of(
        "gateway:\n"
        "  address: here\n"  # a type
        "  max_wait: 400s\n"  # a rule
        "  max_wait: 5s\n"  # a duplicate
        "envoy: {adm: 1}\n"  # a name
        "policy:\n"
        "  sensitivity: {tolerant_at: 300}\n"  # a rule of the policy
    )
    assert [re.match(r"h.yaml:(\d+): ([^:]*)", fault).groups() for fault in faults] == [  # type: ignore[union-attr]
        ("2", "gateway.address"),
        ("3", "gateway.max_wait"),
        ("4", "gateway.max_wait"),
        ("5", "envoy.adm"),
        ("7", "policy.sensitivity.tolerant_at"),
    ]


def test_a_rule_says_nothing_of_a_setting_that_is_faulty_itself() -> None:
    assert len(faults_of("gateway:\n  max_wait: 400s\n  stream_idle_timeout: long\n")) == 1


def test_an_address_that_others_reach_needs_tokens() -> None:
    faults = faults_of("control_plane:\n  grpc: 0.0.0.0:50051\n  auth:\n    operator_tokens_file: t\n")
    assert len(faults) == 1
    assert faults[0].startswith("h.yaml:2: control_plane.grpc: other machines reach 0.0.0.0:50051")
    assert "control_plane.auth.node_tokens_file" in faults[0]
    assert "control_plane.auth.insecure: true" in faults[0]


@pytest.mark.parametrize("auth", ["{insecure: true}", "{node_tokens_file: n, operator_tokens_file: o}"])
def test_an_address_that_others_reach_is_taken_with_tokens_or_when_it_is_meant(auth: str) -> None:
    assert load(f"control_plane: {{grpc: '10.0.0.1:1', auth: {auth}}}", "h.yaml").control_plane.grpc == "10.0.0.1:1"


def test_values_that_may_be_secrets_are_not_shown() -> None:
    text = (
        "control_plane: {auth: {node_tokens_file: [hunter2]}}\ncaller: {token_file: [hunter2], key_file: [hunter2]}\n"
    )
    assert "hunter2" not in "\n".join(faults_of(text))


def test_long_values_are_shortened() -> None:
    assert len(faults_of(f"gateway: {{address: {'a' * 5000}}}")[0]) < 200


@pytest.mark.parametrize(
    "way_out",
    ["ext_proc: {workers: 2, session_store: {url: redis://h}}", "policy: {sessions: {headers: [], body_fields: []}}"],
)
def test_several_workers_are_taken_with_a_store_or_without_sessions(way_out: str) -> None:
    text = way_out if "workers" in way_out else f"ext_proc: {{workers: 2}}\n{way_out}"
    assert load(text, "h.yaml").ext_proc.workers == 2


def test_at_most_a_bounded_number_of_faults_is_told() -> None:
    faults = faults_of("\n".join(f"unknown{number}: 1" for number in range(MAX_FAULTS + 20)))
    assert len(faults) == MAX_FAULTS + 1
    assert faults[-1] == "h.yaml: and 20 more faults"


def test_a_section_that_states_some_settings_keeps_the_defaults_of_its_place() -> None:
    stated = load_policy("qos: {guaranteed: {when_elevated: pass, elevated_at: {kv_cache_use: 0.9}}}", "p.yaml").qos
    default = Policy().qos
    limits = replace(default.guaranteed.elevated_at, kv_cache_use=0.9)
    assert stated.guaranteed == replace(default.guaranteed, when_elevated=Measure.PASS, elevated_at=limits)
    assert stated == replace(default, guaranteed=stated.guaranteed)
