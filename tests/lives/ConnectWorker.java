package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.JoinGroupRequestData;
import org.apache.kafka.common.message.JoinGroupResponseData;
import org.apache.kafka.connect.runtime.distributed.Worker;

/** A worker of Kafka Connect, as DistributedHerder is one; what is assigned is up to Connect's own classes. */
final class ConnectWorker extends Joiner {
    /** The config topic of a cluster: how many tasks a connector has, and where the topic ends. */
    static final class Configs {
        final Map<String, Integer> tasks = new TreeMap<>();
        long offset = 1;

        void set(String connector, int count) {
            offset++;
            if (count < 0) tasks.remove(connector);
            else tasks.put(connector, count);
        }
    }

    final Configs configs;
    private final Truth truth;
    private final Worker worker;

    ConnectWorker(Broker broker, JsonNode given, long seed, Configs configs, Truth truth) {
        super(broker, given, seed);
        this.configs = configs;
        this.truth = truth;
        this.worker = new Worker(broker.clock(), group, "http://" + host.getHostAddress() + ":8083/", configs.tasks,
            () -> configs.offset, text("mode", "sessioned"), number("delay_ms", 300_000));
    }

    @Override
    void start() {
        // It loads its plugins and reads its topics before it joins.
        later(between(500, 3_000), this::join);
    }

    @Override
    String protocolType() {
        return "connect";
    }

    @Override
    JoinGroupRequestData.JoinGroupRequestProtocolCollection protocols() {
        return worker.metadata();
    }

    @Override
    Map<String, ByteBuffer> lead(JoinGroupResponseData answer) {
        return worker.lead(generation, memberId, answer.protocolName(), answer.members());
    }

    @Override
    void prepare(Runnable then) {
        worker.prepare(generation, memberId);
        then.run();
    }

    @Override
    long untilJoin() {
        return between(0, 150);
    }

    @Override
    void assigned(String protocol, ByteBuffer assignment) {
        boolean hasRevoked = worker.joined(generation, memberId, protocol, assignment);
        runs(worker.running());
        // Who leads reads its config topic to the end first; the others ask again at once.
        if (worker.isBehind()) whileAttempt(isLeader ? between(500, 3_000) : 0, this::rejoin);
        // Connectors and tasks are stopped before it joins again.
        else if (hasRevoked) whileAttempt(between(100, 3_000), this::rejoin);
        else if (worker.delay() > 0) whileAttempt(worker.delay(), this::rejoin);
    }

    /** Note what it runs now; nothing if it is gone. Of one that crashed, the group does not know. */
    private void runs(Set<String> tasks) {
        truth.note(broker.now, "runs", Map.of("group", group, "member", memberId, "tasks", tasks, "is_gone", !isAlive));
    }

    @Override
    void stop() {
        later(between(200, 3_000), () -> {
            isAlive = false;
            runs(Set.of());
            leave();
        });
    }

    @Override
    boolean reads(TopicPartition tp) {
        return false;
    }
}
