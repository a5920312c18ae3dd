package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Provider;
import java.security.SecureRandomSpi;
import java.security.Security;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.IntStream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.LeaveGroupRequestData;
import org.apache.kafka.common.message.OffsetDeleteRequestData;

/**
 * Plays lives of groups with Kafka's own coordinator: Lives SCRIPTS FOLDER.
 *
 * <p>A line of SCRIPTS is a life: what happens when, as tests/lives/scripts.py makes it up. Of each
 * one the folder gets NAME.log, the records, and NAME.truth, what was so.
 */
final class Lives {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** Kafka makes member ids up at random: of a life, always the same ones. */
    private static Random ids = new Random();

    private final Broker broker;
    private final Truth truth;
    private final long seed;
    private final Map<String, Client> running = new TreeMap<>();
    private final Map<String, Integer> started = new HashMap<>();
    /** The config topic of each cluster of Connect. */
    private final Map<String, ConnectWorker.Configs> configs = new HashMap<>();

    private Lives(JsonNode life, Truth truth) {
        this.truth = truth;
        this.seed = life.get("seed").asLong();
        this.broker = new Broker(life.get("start").asLong(), seed, JSON.convertValue(life.get("broker"), Map.class), truth);
        for (JsonNode group : life.get("groups")) {
            broker.lead(group.asText());
            truth.watch(group.asText());
        }
        for (JsonNode step : life.get("steps")) {
            broker.in(step.get("at").asLong(), () -> play(step));
        }
    }

    public static void main(String[] arguments) throws IOException {
        Security.insertProviderAt(new Seeded(), 1);
        var said = new Said();
        System.setErr(new PrintStream(said, true, StandardCharsets.UTF_8));
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            JsonNode life = JSON.readTree(line);
            ids = new Random(life.get("seed").asLong());
            var truth = new Truth();
            said.truth = truth;
            var lives = new Lives(life, truth);
            said.broker = lives.broker;
            lives.broker.run(life.get("end").asLong());
            said.broker = null;
            var file = Path.of(arguments[1], life.get("name").asText());
            try (var out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(Path.of(file + ".log"))))) {
                lives.broker.log.write(out);
            }
            Files.write(Path.of(file + ".truth"), truth.lines);
        }
        System.exit(0);
    }

    private void play(JsonNode step) {
        String what = step.get("do").asText();
        String name = step.path("client").asText();
        String group = step.path("group").asText();
        String topic = step.path("topic").asText();
        var client = running.get(name);
        if (client == null && step.has("client") && !what.equals("start")) return;
        switch (what) {
            case "create" -> broker.create(topic, step.get("partitions").asInt(), step.get("rate").asDouble());
            case "grow" -> broker.grow(topic, step.get("partitions").asInt());
            case "drop" -> broker.drop(topic);
            case "move" -> broker.move(topic, step.get("partition").asInt(), step.get("ms").asLong());
            case "produce" -> broker.topics.get(topic).produce(
                step.get("rate").asDouble(), step.path("at_once").asLong(), broker.now);
            case "configure" -> broker.configure(group, JSON.convertValue(step.get("settings"), Map.class));
            case "start" -> start(name, step.get("settings"));
            case "stop" -> running.remove(name).stop();
            case "crash" -> running.remove(name).crash();
            case "freeze" -> client.freeze(step.get("ms").asLong());
            case "work" -> ((Reader) client).work(step.get("ms").asLong());
            case "hang" -> ((Reader) client).hang();
            case "stick" -> ((Reader) client).stick(topic, step.get("partition").asInt());
            case "seek" -> ((Reader) client).seek(step.path("share").asDouble(-1), step.path("by").asLong());
            case "rejoin" -> running.values().forEach(one -> {
                if (one instanceof Joiner joiner && joiner.isLeader) joiner.rejoin();
            });
            case "subscribe" -> subscribe(client, new TreeSet<>(List.of(JSON.convertValue(step.get("topics"), String[].class))));
            case "fail_over" -> broker.failOver(group, step.get("ms").asLong());
            case "set_offsets" -> setOffsets(group, topic, step.get("share").asDouble());
            case "delete_offsets" -> deleteOffsets(group, topic);
            case "delete_group" -> broker.service.deleteGroups(admin(2), List.of(group), Client.BUFFERS);
            case "remove" -> broker.service.leaveGroup(admin(5), new LeaveGroupRequestData().setGroupId(group)
                .setMembers(List.of(new LeaveGroupRequestData.MemberIdentity().setGroupInstanceId(step.get("instance").asText()))));
            case "connector" -> connector(step);
            default -> throw new IllegalArgumentException(what);
        }
    }

    private void start(String name, JsonNode settings) {
        long own = seed * 31 + name.hashCode() + started.merge(name, 1, Integer::sum) * 7919L;
        var client = switch (settings.get("protocol").asText()) {
            case "classic" -> new ClassicConsumer(broker, settings, own);
            case "consumer" -> new ModernConsumer(broker, settings, own);
            case "share" -> new ShareConsumer(broker, settings, own);
            case "streams" -> new StreamsMember(broker, settings, own);
            case "connect" -> new ConnectWorker(broker, settings, own, configs(settings), truth);
            default -> new Assigner(broker, settings, own);
        };
        running.put(name, client);
        client.start();
    }

    private static void subscribe(Client client, TreeSet<String> topics) {
        if (client instanceof ClassicConsumer classic) classic.resubscribe(topics);
        if (client instanceof ModernConsumer modern) modern.resubscribe(topics);
        if (client instanceof ShareConsumer share) share.resubscribe(topics);
    }

    /** Set connectors, of which each has so many tasks; the cluster's workers read it in their config topic. */
    private void connector(JsonNode step) {
        var changed = configs(step);
        changed.set(step.get("name").asText(), step.get("tasks").asInt());
        running.values().forEach(client -> {
            if (client instanceof ConnectWorker worker && worker.configs == changed) worker.later(worker.between(5, 200), worker::rejoin);
        });
    }

    private ConnectWorker.Configs configs(JsonNode given) {
        return configs.computeIfAbsent(given.path("cluster").asText(), name -> new ConnectWorker.Configs());
    }

    private org.apache.kafka.server.authorizer.AuthorizableRequestContext admin(int version) {
        return Broker.by("adminclient-1", null, version);
    }

    private List<Integer> partitions(String topic) {
        return IntStream.range(0, broker.topics.get(topic).partitions).boxed().toList();
    }

    private void setOffsets(String group, String topic, double share) {
        var offsets = new HashMap<TopicPartition, Long>();
        long end = broker.topics.get(topic).end(broker.now);
        partitions(topic).forEach(p -> offsets.put(new TopicPartition(topic, p), (long) (share * end)));
        var tool = new Assigner(broker, JSON.createObjectNode().put("group", group).put("client_id", "adminclient-1"), 0);
        tool.ask(() -> broker.service.commitOffsets(tool.by(10), tool.request(offsets, "", -1, null), Client.BUFFERS), answer -> { });
    }

    private void deleteOffsets(String group, String topic) {
        var topics = new OffsetDeleteRequestData.OffsetDeleteRequestTopicCollection();
        topics.add(new OffsetDeleteRequestData.OffsetDeleteRequestTopic().setName(topic).setPartitions(partitions(topic).stream()
            .map(p -> new OffsetDeleteRequestData.OffsetDeleteRequestPartition().setPartitionIndex(p)).toList()));
        broker.service.deleteOffsets(admin(0), new OffsetDeleteRequestData().setGroupId(group).setTopics(topics), Client.BUFFERS);
    }

    /** What the coordinator writes to its log: its own words on why it does what it does. */
    private static final class Said extends OutputStream {
        private final PrintStream err = System.err;
        private final StringBuilder line = new StringBuilder();
        private Truth truth;
        private Broker broker;

        @Override
        public void write(int b) {
            if (b != '\n') {
                line.append((char) b);
                return;
            }
            if (broker == null || !line.toString().startsWith("INFO")) err.println(line);
            else truth.note(broker.now, "said", Map.of("text", line.toString()));
            line.setLength(0);
        }
    }

    private static final class Seeded extends Provider {
        Seeded() {
            super("Seeded", "1", "");
            put("SecureRandom.Seeded", Source.class.getName());
        }
    }

    /** Random bytes that are the same in every run. */
    public static final class Source extends SecureRandomSpi {
        @Override
        protected void engineSetSeed(byte[] given) {}

        @Override
        protected void engineNextBytes(byte[] bytes) {
            ids.nextBytes(bytes);
        }

        @Override
        protected byte[] engineGenerateSeed(int count) {
            return new byte[count];
        }
    }
}
