# Coatcheck's image: one for all roles.
#
#   docker build -t coatcheck .
#   docker run --read-only -p 8080:8080 -e COATCHECK_REDIS__URL=redis://… coatcheck serve --role dispatcher
#
# Nothing of it is written to at run time. Settings are environment variables, as everywhere. ./ops/image-check builds
# and tries it without a Docker engine.

# Any image with Python 3.11 to 3.14 as `python3` and its venv module, the same in both stages.
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS builder
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all: PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY ops/constraints-build.txt ops/constraints-runtime.txt ops/
# Two environments: one with pip and what builds our wheel, to be left behind; one without either, to be copied.
RUN python3 -m venv /tools \
    && python3 -m venv --without-pip /opt/coatcheck \
    && /tools/bin/pip install --require-hashes --requirement ops/constraints-build.txt \
    && /tools/bin/pip --python /opt/coatcheck/bin/python3 install --no-compile --require-hashes \
        --requirement ops/constraints-runtime.txt
COPY pyproject.toml README.md ./
COPY service service
COPY storage_backends storage_backends
# No index is asked any more: what the project needs is there, by its hash.
RUN /tools/bin/pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir /wheel . \
    && /tools/bin/pip --python /opt/coatcheck/bin/python3 install --no-compile --no-index --no-deps \
        --find-links /wheel coatcheck \
    && /tools/bin/pip --python /opt/coatcheck/bin/python3 check
# Bytecode that is believed unread: it cannot be written later, and a copy's or a rebuild's times do not spoil it.
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/coatcheck/lib

FROM ${BASE}
# The base's own pip is of no use here, and official images come without their standard library's bytecode, which
# would be compiled at every start.
RUN set -e; \
    stdlib=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))'); \
    rm -rf "$stdlib"/ensurepip "$stdlib"/site-packages/pip "$stdlib"/site-packages/pip-* /usr/local/bin/pip*; \
    python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash \
        -x '/(test|tests|idlelib|lib2to3|tkinter|turtledemo|pydoc_data|site-packages|dist-packages)/' "$stdlib"
COPY --from=builder /opt/coatcheck /opt/coatcheck

ENV PATH=/opt/coatcheck/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    COATCHECK_HTTP__HOST=0.0.0.0

ARG REVISION=unknown
LABEL org.opencontainers.image.title="coatcheck" \
      org.opencontainers.image.description="A delayed-job service with pluggable payload storage" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="MIT"

# A number, so that Kubernetes' runAsNonRoot can see that it is not root's; no such user is needed in /etc/passwd.
USER 10001:10001
EXPOSE 8080
# Alive, as `serve` means it, on whatever port the settings say; an address like 0.0.0.0 reaches this machine.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python3", "-c", "from http.client import HTTPConnection as C; from service.settings import load; h = load().http; c = C(h.host, h.port, timeout=4); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
# Exec form: the process itself is told to stop, without a shell between.
ENTRYPOINT ["coatcheck"]
CMD ["serve"]
