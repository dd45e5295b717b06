"""The command line, and the wiring of the parts into processes."""

import os

# Children are programs of their own, started by a fork and an exec, and need nothing of gRPC. Its fork handlers have
# crashed some of them in between. Read when gRPC begins, so that it is set before anything imports that.
# https://github.com/grpc/grpc/blob/master/doc/fork_support.md
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
