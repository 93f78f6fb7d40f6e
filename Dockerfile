# holdlog with its clients of PostgreSQL and NATS: docker build -t holdlog .
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ENV UV_PROJECT_ENVIRONMENT=/opt/holdlog \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1 \
    UV_PYTHON_DOWNLOADS=never
RUN pip install --no-cache-dir 'uv>=0.9,<1'
WORKDIR /src
COPY pyproject.toml uv.lock ./
RUN uv sync --locked --no-dev --extra http --extra nats --extra postgres --no-install-project
COPY . .
RUN uv sync --locked --no-dev --extra http --extra nats --extra postgres --no-editable

FROM python:${PYTHON}-slim
ARG VERSION=0.2.0
LABEL org.opencontainers.image.title="holdlog" \
      org.opencontainers.image.description="Coordination store for AI agents: versioned shared values, and leases on files or any named resource. Over MCP, HTTP and as a library." \
      org.opencontainers.image.url="https://github.com/holdlog/holdlog" \
      org.opencontainers.image.source="https://github.com/holdlog/holdlog" \
      org.opencontainers.image.documentation="https://github.com/holdlog/holdlog/tree/main/docs" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}"
RUN python -m pip uninstall --yes pip \
    && useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin holdlog \
    && install -d -o holdlog -g holdlog -m 0700 /data
COPY --from=build /opt/holdlog /opt/holdlog
ENV PATH=/opt/holdlog/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOLDLOG_DB=/data/state.db
USER 10001:10001
WORKDIR /data
VOLUME ["/data"]
# No HEALTHCHECK: only servers over HTTP have something to ask, /readyz, which compose.yaml checks.
ENTRYPOINT ["holdlog"]
