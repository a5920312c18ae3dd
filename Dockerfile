# groupledger with Java, Spark and all JARs: at run time it needs no network but your brokers and your storage.
# docker build -t groupledger . && docker run --rm -v groups:/data groupledger demo --lakehouse /data
# A new volume belongs to the image's user; a folder of the host has to: sudo install -d -o 10001 -g 10001 /data/groups
FROM python:3.13.9-slim-bookworm

# Debian keeps no older version than its newest one, so that a pinned one would soon be gone.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/groupledger
# What is fetched comes before the code: a change of the code fetches nothing again.
ENV GROUPLEDGER_CACHE=/opt/groupledger/.cache
COPY requirements.lock ./
COPY conf/bootstrap.sh conf/ivysettings.xml conf/jars.xml conf/
COPY launch/__init__.py launch/jars.py launch/signals.py launch/
RUN bash -c '. conf/bootstrap.sh && ensure_venv "$PWD/.venv" "$PWD/requirements.lock" "about 670 MB"' \
 && .venv/bin/python -c 'from launch import jars; jars.fetch(jars.spark_jars())'

COPY . .

# The demo shows that all of it works together.
RUN ./spark-submit.sh demo --lakehouse /tmp/demo-lakehouse \
 && rm -rf /tmp/demo-lakehouse .venv.log

RUN useradd --system --create-home --uid 10001 groupledger \
 && install -d -o groupledger -g groupledger /data
USER 10001
WORKDIR /data

ENTRYPOINT ["/opt/groupledger/spark-submit.sh"]
CMD ["--help"]
