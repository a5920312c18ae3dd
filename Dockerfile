# groupledger with Java, Spark and all JARs: at run time it needs no network but your brokers and your storage.
# docker build -t groupledger . && docker run --rm -v /data/groups:/data groupledger demo --lakehouse /data
FROM python:3.13.9-slim-bookworm

# Debian keeps no older version than its newest one, so that a pinned one would soon be gone.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/groupledger
COPY . .

# The demo brings the Python packages and the JARs, and shows that they work together.
ENV GROUPLEDGER_CACHE=/opt/groupledger/.cache
RUN ./spark-submit.sh demo --lakehouse /tmp/demo-lakehouse \
 && rm -rf /tmp/demo-lakehouse .venv.log

RUN useradd --system --create-home --uid 10001 groupledger \
 && install -d -o groupledger /data
USER 10001
WORKDIR /data

ENTRYPOINT ["/opt/groupledger/spark-submit.sh"]
CMD ["--help"]
