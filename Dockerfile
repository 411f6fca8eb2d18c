# docker build -t focus . && docker run --rm -v "$PWD:/work" focus --help
FROM debian:bookworm-slim AS build
COPY apps/packages.sh /source/apps/packages.sh
RUN bash -c '. /source/apps/packages.sh && install_packages && apt_install dpkg-dev file'
COPY . /source
RUN cmake -S /source -B /build -G Ninja -DFOCUS_TESTS=OFF -DFOCUS_MPI=OFF && \
    cmake --build /build --target package

FROM debian:bookworm-slim
COPY --from=build /build/focus_*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/focus_*.deb && \
    rm -rf /tmp/focus_*.deb /var/lib/apt/lists/*
WORKDIR /work
ENTRYPOINT ["focus"]
