# agentd as a static binary in an empty image: no shell, no package, an unprivileged user. scripts/image-smoke runs the
# same thing without Docker.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# What `agentd version` says. Without them it says the commit, which .git tells where the clone has one.
ARG VERSION COMMIT
RUN VERSION="$VERSION" COMMIT="$COMMIT" scripts/build /out/agentd && mkdir /out/data /out/tmp

FROM scratch
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
