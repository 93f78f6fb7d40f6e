# NATS with holdlog's configuration, and a data folder that its user can write.
FROM nats:2.15-alpine
RUN mkdir -m 0700 /data && chown 10002:10002 /data
COPY deploy/nats.conf /etc/nats/holdlog.conf
USER 10002:10002
VOLUME ["/data"]
CMD ["--config", "/etc/nats/holdlog.conf"]
