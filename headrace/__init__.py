"""The command line, and the wiring of the parts into processes."""

import os

# Children are programs of their own, started by a fork and an exec, and need nothing of gRPC. One was seen to crash in
# between, in a thread of gRPC's, which only its fork handlers start there. Read when gRPC begins, so it is set first.
# https://github.com/grpc/grpc/blob/master/doc/fork_support.md
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
