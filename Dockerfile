# syntax=docker/dockerfile:1.7
# One image for every part: control plane, filter, node agent, Envoy and the demo's engines.

FROM python:3.12.12-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# For the build's tools, which are among the development packages; all of them stay behind in this stage.
COPY requirements.lock ./
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip install --no-deps --require-hashes --requirement requirements.lock
COPY . ./
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.12.12-slim-bookworm
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# The demo's engines need OpenMP. Debian keeps one version of it in a release, so a pin would only break in time.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*
COPY requirements-runtime.lock /tmp/
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip install --no-deps --require-hashes --requirement /tmp/requirements-runtime.lock
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    python -m pip install --no-cache-dir --no-deps --no-index /wheels/*.whl
# A volume mounted at /models takes over its owner.
RUN useradd --uid 10001 --create-home headrace \
    && install --directory --owner=headrace /models
USER 10001
WORKDIR /home/headrace
ENV PYTHONUNBUFFERED=1
ENTRYPOINT ["headrace"]
CMD ["--help"]
