# agentd as a static binary in an empty image: no shell, no package, an unprivileged user. scripts/image builds the same
# without Docker, from the last stage of this file, and scripts/image-smoke runs that.
FROM golang:1.26.8@sha256:3c3e25a4da13fd0478eed2df1eb35a0e667094a7124d3993a6a1d30f71c17e79 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# What `agentd version` says. Without them it says the commit, which .git tells where the clone has one.
ARG VERSION COMMIT
RUN VERSION="$VERSION" COMMIT="$COMMIT" scripts/build /out/agentd && mkdir /out/data /out/tmp

FROM scratch
ARG VERSION COMMIT
LABEL org.opencontainers.image.title=agentd
LABEL org.opencontainers.image.description="Hosts trees of LLM agents: agents run on the server, tools run on the client"
LABEL org.opencontainers.image.source=https://github.com/apzuk3/agentd
LABEL org.opencontainers.image.licenses=Apache-2.0
LABEL org.opencontainers.image.version=$VERSION
LABEL org.opencontainers.image.revision=$COMMIT
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
# SQLite spills large sorts into /tmp.
COPY --from=build --chown=65532:65532 /out/tmp /tmp
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build /out/agentd /agentd
USER 65532:65532
# Open until the first API key is made: docker exec CONTAINER /agentd keys create NAME. Publish the port on 127.0.0.1
# until then.
ENV AGENTD_DATA=/data AGENTD_ADDR=:8080 AGENTD_INSECURE=true
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["/agentd", "healthcheck"]
ENTRYPOINT ["/agentd"]
CMD ["serve"]
