# Images of attnd, on Debian 12. BuildKit or buildah, here with the tags that deploy/helm/attnd asks for:
#   docker build --target cpu -t attnd:VERSION .
#   docker build --target cuda -t attnd:VERSION-cuda .
# Arguments, for mirrors, pinned digests and labels:
#   BASE_IMAGE          Debian 12, to build on and to run on
#   CUDA_DEVEL_IMAGE    has nvcc in /usr/local/cuda (target cuda)
#   CUDA_BASE_IMAGE     has cuBLAS in /usr/local/cuda (target cuda)
#   CUDA_ARCHITECTURES  as 90a-real, to compile for one kind of card; default: all that are served
#   VERSION, REVISION   of the sources, for the labels
ARG BASE_IMAGE=debian:bookworm-slim
ARG CUDA_DEVEL_IMAGE=nvidia/cuda:13.0.1-devel-ubuntu24.04
ARG CUDA_BASE_IMAGE=nvidia/cuda:13.0.1-runtime-ubuntu24.04

FROM ${BASE_IMAGE} AS build
WORKDIR /src
COPY deploy deploy
RUN deploy/install-packages deploy/packages.txt
COPY . .
RUN cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DATTND_TESTS=OFF -DATTND_CUDA=OFF && \
    ninja -C build -j "$(nproc)" attnd attnctl && \
    install -D --strip -t /out/usr/bin build/bin/attnd build/bin/attnctl && \
    install -D -m 644 -t /out/usr/share/doc/attnd LICENSE

FROM ${BASE_IMAGE} AS cpu
RUN --mount=type=bind,source=deploy,target=/mnt \
    /mnt/install-packages /mnt/runtime-packages.txt && \
    apt-get clean && \
    rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/log/*.log /var/log/apt
COPY --from=build /out/ /
# A number, so that Kubernetes can see that it is not root; it owns no file, and attnd writes none.
USER 10001:10001
EXPOSE 8470 9470
STOPSIGNAL SIGTERM
# With TLS or another port, give the container a health check with attnctl's --target and --tls_* flags.
HEALTHCHECK --interval=10s --timeout=6s --start-period=5m --retries=3 \
    CMD ["/usr/bin/attnctl", "health", "--timeout_s=2"]
# What follows the image's name is appended: further flags. A --listen there is one more address; with
# --entrypoint /usr/bin/attnd, or Kubernetes' command:, no flag is given.
ENTRYPOINT ["/usr/bin/attnd", "--listen=0.0.0.0:8470", "--http=0.0.0.0:9470"]
# Last, so that a new revision alone makes no layer anew.
ARG BASE_IMAGE
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="attnd" \
      org.opencontainers.image.description="Attention as a service: weights and KV caches behind gRPC" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"

# The cuda images give their toolkit alone, so that both targets are the same Debian.
FROM ${CUDA_DEVEL_IMAGE} AS cuda-devel
FROM ${CUDA_BASE_IMAGE} AS cuda-base

FROM build AS build-cuda
ARG CUDA_ARCHITECTURES
RUN --mount=type=bind,from=cuda-devel,source=/usr/local/cuda,target=/usr/local/cuda \
    cmake -S . -B build -DATTND_CUDA=ON ${CUDA_ARCHITECTURES:+"-DCMAKE_CUDA_ARCHITECTURES=$CUDA_ARCHITECTURES"} && \
    ninja -C build -j "$(nproc)" attnd && \
    install --strip -t /out/usr/bin build/bin/attnd

FROM cpu AS cuda
COPY --from=cuda-base /usr/local/cuda/lib64/libcublas.so.13 /usr/local/cuda/lib64/libcublasLt.so.13 \
     /usr/local/cuda/lib64/
COPY --from=build-cuda /out/usr/bin/attnd /usr/bin/attnd
# NVIDIA's container runtime mounts the host's driver: all cards, libcuda and nvidia-smi.
ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# Without --target.
FROM cpu
