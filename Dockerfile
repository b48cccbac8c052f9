# The operator without shell, package manager or writable path, for any user id.
#
#   make image                      for this machine
#   make image ARGS="--platform linux/amd64,linux/arm64 --push"
#
# `image/renew` pins both base images to the digests of today. `make release` makes an image without a
# container engine, from Debian's packages: docs/release.md says how the two differ.
# The two must share the minor version of Python: byte code and wheels are made for one.
ARG BUILD=docker.io/library/python:3.13-slim-trixie
ARG RUNTIME=gcr.io/distroless/python3-debian13:nonroot

FROM ${BUILD} AS build
ARG SOURCE_DATE_EPOCH=0
# requirements-otel.lock adds traces, and 11 MB.
ARG LOCK=requirements.lock
WORKDIR /src
COPY requirements.lock requirements-otel.lock ./
COPY image/ image/
COPY rollout_operator/ rollout_operator/
RUN PIP_NO_CACHE_DIR=1 LOCK=${LOCK} image/assemble /image

FROM ${RUNTIME}
# Arguments end with their stage: what the labels say is named again here.
ARG RUNTIME
ARG RUNTIME_DIGEST=""
ARG SOURCE=""
ARG VERSION=0.0.0
ARG REVISION=""
ARG CREATED="1970-01-01T00:00:00Z"
LABEL org.opencontainers.image.title="rollout-operator" \
      org.opencontainers.image.description="Rolling updates for stateful applications spread over availability zones, one zone at a time" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${RUNTIME}" \
      org.opencontainers.image.base.digest="${RUNTIME_DIGEST}"
COPY --from=build /image/ /
ENV PYTHONDONTWRITEBYTECODE=1
# By number: the user needs no entry in the password file, and runAsNonRoot can be checked.
USER 65532:65532
WORKDIR /
EXPOSE 8001
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/rollout-operator"]
CMD []
