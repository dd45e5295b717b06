"""One real engine for the demo: llama.cpp's own server over a GGUF file, in this process.

    python -m headrace.demo.engine MODEL PORT ALIAS --context TOKENS --slots N [--embeddings] [--host IP]

It listens on loopback unless told otherwise, and ends on SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Sequence
from pathlib import Path

# Enough to keep several slots and the agent's probes apart; the demo shares its machine.
HTTP_THREADS = 8


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m headrace.demo.engine", description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("port", type=int)
    parser.add_argument("alias", help="the name under which the model is served")
    parser.add_argument("--context", type=int, required=True, help="tokens of one sequence")
    parser.add_argument("--slots", type=int, required=True, help="sequences that run at once")
    parser.add_argument("--embeddings", action="store_true", help="answer /v1/embeddings too")
    parser.add_argument("--threads", type=int, default=_default_threads(), help="processor threads to compute with")
    parser.add_argument("--host", default="127.0.0.1", help="IP address to listen on")
    given = parser.parse_args(arguments)
    # Left to the kernel: a handler of Python's would wait for the model to be loaded. There is nothing to put in order,
    # the file is only read, and clients see their connection close.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    serve(
        given.model,
        given.port,
        given.alias,
        host=given.host,
        context=given.context,
        slots=given.slots,
        embeddings=given.embeddings,
        threads=given.threads,
    )


def serve(
    model: Path, port: int, alias: str, *, host: str, context: int, slots: int, embeddings: bool, threads: int
) -> None:
    """Serves until a signal ends the process. `context` is in tokens for each of the `slots`."""
    import xllamacpp  # noqa: PLC0415 - takes its time, and is only installed for the demo

    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = [alias]
    params.hostnames = [host]
    params.port = port
    params.n_ctx = context * slots
    params.n_parallel = slots
    params.n_threads_http = HTTP_THREADS
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.ui = False
    params.verbosity = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    if embeddings:
        # Completions work as before: pooling is for requests that ask for embeddings. Such a request has to fit one
        # physical batch.
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
        params.n_ubatch = params.n_batch
    server = xllamacpp.Server(params)
    print(f"{alias} on {server.listening_address}", flush=True)
    signal.pause()


def _default_threads() -> int:
    """Half of the processors. llama.cpp's threads wait for each other at every step, so one that finds its processor
    taken, by the other engine, holds up all: two threads on two busy processors took 10 times as long as one."""
    return max(1, min(4, (os.cpu_count() or 1) // 2))


if __name__ == "__main__":
    main()
