"""What a node may say of itself, and an operator of a pool's load. Pure: no look-ups, no network."""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from controlplane.errors import OverrideError, RegistrationError
from controlplane.model import SIGNALS, NodeLoad, NodeSpec, Override, ServedModel
from controlplane.policy.formats import is_listed
from controlplane.policy.settings import FormatRules

# Each bound is far above any real node; they keep a node session small enough for etcd, which takes 1.5 MiB.
LONGEST_TEXT = 200  # characters
MOST_MODELS = 200
MOST_ALIASES = 50  # of one model
MOST_LABELS = 32
LONGEST_OVERRIDE = 86_400.0  # seconds; a drill, not a setting
MOST_SEQUENCES = 100_000  # of one node, running, waiting or at once; a whole fleet's sum still fits into a message
LARGEST_COUNT = 2**31 - 1  # of tokens or sequences; what Envoy and protobuf carry without a second thought

_NODE_ID = re.compile(r"[A-Za-z0-9._-]+")
_MODEL_ID = re.compile(r"[A-Za-z0-9._:/+-]+")
_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]{1,5})")


def checked(spec: NodeSpec, formats: FormatRules | None, ours: Collection[str] = ()) -> NodeSpec:
    """The description with its address in one canonical spelling. `formats` are those that the fleet knows,
    None takes any; `ours` are addresses of Headrace's own ports, where no engine can be.

    Raises RegistrationError with every fault.
    """
    address, address_faults = _canonical_address(spec.address)
    faults = [
        *_name_faults("node_id", spec.node_id, _NODE_ID, "letters, digits and . _ -"),
        *address_faults,
        *_models_faults(spec.models, formats),
        *_text_faults("engine", spec.engine),
        *_text_faults("engine_version", spec.engine_version),
        *_text_faults("gpu_model", spec.gpu_model),
        *_text_faults("hardware_class", spec.hardware_class),
        *_text_faults("engine_instance", spec.engine_instance),
        *_health_path_faults(spec.health_path),
        *_labels_faults(spec.labels.items()),
    ]
    if address in ours:
        faults.append(f"address: {address} is Headrace's own; a request would be led back to it again and again")
    for name, number in (("gpu_count", spec.gpu_count), ("vram_bytes", spec.vram_bytes)):
        if number < 0:
            faults.append(f"{name}: {number} is negative; say 0 when unknown")
    if faults:
        raise RegistrationError(faults)
    return replace(spec, address=address)


def check_load(load: NodeLoad) -> None:
    """Raises RegistrationError with every fault of a load report."""
    faults = [
        f"load.{name}: {number} is not from 0 to {MOST_SEQUENCES}"
        for name, number in (("running", load.running), ("waiting", load.waiting))
        if not 0 <= number <= MOST_SEQUENCES
    ]
    if load.kv_cache_use is not None and not 0 <= load.kv_cache_use <= 1:
        faults.append(f"load.kv_cache_use: {load.kv_cache_use} is no share from 0 to 1; leave it unset when unknown")
    for name, value in (("tokens_per_second", load.tokens_per_second), ("ttft_seconds", load.ttft_seconds)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            faults.append(f"load.{name}: {value} is not 0 or a finite positive number; leave it unset when unknown")
    if faults:
        raise RegistrationError(faults)


def check_override(override: Override, seconds: float) -> None:
    """Raises OverrideError with every fault of an override that is to last so many seconds."""
    faults = [
        f"{name}: {number} is not from 0 to {MOST_SEQUENCES}"
        for name, number in (("waiting", override.waiting), ("running", override.running))
        if number is not None and not 0 <= number <= MOST_SEQUENCES
    ]
    faults += [
        f"{name}: {share:g} is no share from 0 to 1"
        for name, share in (
            ("kv_cache_use", override.kv_cache_use),
            ("sla_violation_rate", override.sla_violation_rate),
        )
        if share is not None and not 0 <= share <= 1
    ]
    if not override.signals:
        faults.append(f"no signal is given; give at least one of {', '.join(SIGNALS)}")
    if not 0 < seconds <= LONGEST_OVERRIDE:
        faults.append(f"duration_seconds: {seconds:g} is not more than 0 and at most {LONGEST_OVERRIDE:g}")
    if faults:
        raise OverrideError(faults)


def _canonical_address(address: str) -> tuple[str, list[str]]:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return address, [f"address: {address!r} is not IP:port, such as 10.0.0.7:8000 or [fd00::7]:8000"]
    faults = []
    port = int(match["port"])
    if not 0 < port < 65536:
        faults.append(f"address: port {port} is not from 1 to 65535")
    host = match["host"] if match["v6"] is None else match["v6"]
    try:
        ip = ipaddress.IPv4Address(host) if match["v6"] is None else ipaddress.IPv6Address(host)
    except ValueError:
        faults.append(
            f"address: {host!r} is not an IP address; give the engine's IP as Envoy reaches it, "
            "since Envoy looks up no names for the endpoints that it is sent"
        )
        return address, faults
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped  # the same address, so that no two nodes hold it in two spellings
    if ip.is_unspecified:
        faults.append(
            f"address: {ip} means every address of a machine and cannot be connected to; give one that Envoy can reach"
        )
    elif ip.is_multicast or str(ip) == "255.255.255.255":
        faults.append(f"address: {ip} is no address of one machine")
    elif isinstance(ip, ipaddress.IPv6Address) and ip.scope_id:
        faults.append(f"address: {ip} holds good on one interface of one machine only; give one without %")
    elif ip.is_link_local:
        faults.append(f"address: {ip} holds good on one link only; give one that Envoy can reach")
    return (f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"), faults


def _models_faults(models: tuple[ServedModel, ...], formats: FormatRules | None) -> Iterator[str]:
    if not models:
        yield "models: a node serves at least one model"
    if len(models) > MOST_MODELS:
        yield f"models: {len(models)} are more than {MOST_MODELS}"
        return
    for index, model in enumerate(models):
        yield from _model_faults(f"models[{index}]", model, formats)
    for model_id, times in Counter(model.id for model in models).items():
        if times > 1:
            yield f"models: {model_id!r} is listed {times} times; list each model once"
    names = Counter(name for model in models for name in {model.id, model.served_name or model.id, *model.aliases})
    ids = Counter(model.id for model in models)
    for name, times in names.items():
        if times > 1 and ids[name] < times:
            yield f"models: {name!r} names {times} models; the engine could not tell which is meant"


def _model_faults(where: str, model: ServedModel, formats: FormatRules | None) -> Iterator[str]:
    yield from _name_faults(f"{where}.id", model.id, _MODEL_ID, "letters, digits and . _ : / + -")
    yield from _text_faults(f"{where}.served_name", model.served_name)
    if len(model.aliases) > MOST_ALIASES:
        yield f"{where}.aliases: {len(model.aliases)} are more than {MOST_ALIASES}"
    else:
        for alias in model.aliases:
            yield from _text_faults(f"{where}.aliases", alias)
        if not all(model.aliases):
            yield f"{where}.aliases: one is empty; leave it out"
        for alias, times in Counter(model.aliases).items():
            if times > 1:
                yield f"{where}.aliases: {alias!r} is listed {times} times; list each alias once"
    yield from _text_faults(f"{where}.format", model.format)
    if formats is not None and not is_listed(model.format, formats):
        known = ", ".join(sorted((*formats.full, *formats.quantized)))
        shown = _short(model.format)
        yield f"{where}.format: {shown} is not known; use one of {known}, or add it to the policy's formats"
    for name, number, most in (
        ("max_context", model.max_context, LARGEST_COUNT),
        ("max_sequences", model.max_sequences, MOST_SEQUENCES),
    ):
        if not 0 < number <= most:
            yield f"{where}.{name}: {number} is not from 1 to {most}"
    if model.kv_cache_tokens < 0:
        yield f"{where}.kv_cache_tokens: {model.kv_cache_tokens} is negative; say 0 when unknown"


def _health_path_faults(path: str) -> Iterator[str]:
    yield from _text_faults("health_path", path)
    if path and (not path.startswith("/") or " " in path):
        yield f"health_path: {path!r} is no path, such as /health; leave it empty to check the connection only"


def _labels_faults(labels: Iterable[tuple[str, str]]) -> Iterator[str]:
    labels = list(labels)
    if len(labels) > MOST_LABELS:
        yield f"labels: {len(labels)} are more than {MOST_LABELS}"
        return
    for name, value in labels:
        if not name:
            yield "labels: one has no name"
        yield from _text_faults("labels", name)
        yield from _text_faults(f"labels[{name!r}]", value)


def _name_faults(where: str, name: str, allowed: re.Pattern[str], characters: str) -> Iterator[str]:
    if not name:
        yield f"{where}: it is missing"
    elif not allowed.fullmatch(name):
        yield f"{where}: {_short(name)} has other characters than {characters}"
    elif len(name) > LONGEST_TEXT:
        yield f"{where}: {_short(name)} is longer than {LONGEST_TEXT} characters"


def _text_faults(where: str, text: str) -> Iterator[str]:
    if len(text) > LONGEST_TEXT:
        yield f"{where}: {_short(text)} is longer than {LONGEST_TEXT} characters"
    elif not text.isprintable():
        yield f"{where}: {_short(text)} has characters that cannot be printed"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
