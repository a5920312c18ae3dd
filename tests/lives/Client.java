package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.JsonNode;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.IntSupplier;
import java.util.function.Supplier;
import java.util.regex.Pattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.OffsetCommitRequestData;
import org.apache.kafka.common.message.OffsetFetchRequestData;
import org.apache.kafka.common.message.TxnOffsetCommitRequestData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/** A process with a client in it: it may be frozen, and die. It has what the script says of it. */
abstract class Client {
    static final BufferSupplier BUFFERS = BufferSupplier.NO_CACHING;

    final Broker broker;
    final String group;
    final String clientId;
    final String instance;
    final InetAddress host;
    final Random random;
    boolean isAlive = true;
    private final JsonNode given;
    private long frozenUntil;

    Client(Broker broker, JsonNode given, long seed) {
        this.broker = broker;
        this.given = given;
        this.group = text("group", null);
        this.clientId = text("client_id", "app");
        this.instance = text("instance", null);
        this.random = new Random(seed);
        try {
            this.host = InetAddress.getByName(text("host", "10.0.0.1"));
        } catch (UnknownHostException error) {
            throw new IllegalArgumentException(error);
        }
    }

    final int number(String name, int unset) {
        return given.path(name).asInt(unset);
    }

    final String text(String name, String unset) {
        return given.hasNonNull(name) ? given.get(name).asText() : unset;
    }

    final List<String> texts(String name) {
        var found = new ArrayList<String>();
        given.path(name).forEach(one -> found.add(one.asText()));
        return found;
    }

    final int between(int least, int most) {
        return least + random.nextInt(most - least + 1);
    }

    final AuthorizableRequestContext by(int version) {
        return Broker.by(clientId, host, version);
    }

    /** Do something when the process runs: never if it is dead, later if it is frozen. */
    final void later(long delay, Runnable action) {
        broker.in(delay, () -> {
            if (isAlive && broker.now < frozenUntil) later(frozenUntil - broker.now + between(0, 5), action);
            else if (isAlive) action.run();
        });
    }

    /** Do something later, unless a counter has gone on meanwhile. */
    final void later(long delay, IntSupplier counter, Runnable action) {
        int mine = counter.getAsInt();
        later(delay, () -> {
            if (counter.getAsInt() == mine) action.run();
        });
    }

    final <T> void ask(Supplier<CompletableFuture<T>> request, Consumer<T> answer) {
        broker.ask(request, given -> later(0, () -> answer.accept(given)));
    }

    abstract void start();

    /** Close, as a client does that is told to. */
    abstract void stop();

    void crash() {
        isAlive = false;
    }

    void freeze(long ms) {
        frozenUntil = Math.max(frozenUntil, broker.now + ms);
    }

    /** Whether it may ask the same again soon. */
    static boolean isSoonOver(Errors error) {
        return error == Errors.NOT_COORDINATOR || error == Errors.COORDINATOR_LOAD_IN_PROGRESS
            || error == Errors.COORDINATOR_NOT_AVAILABLE;
    }
}

/** A client that reads: where it is in its partitions, and what it commits. */
abstract class Reader extends Client {
    private static final class Position {
        double at;
        long committed = -1;
        long since;
    }

    Set<String> names = new TreeSet<>(texts("topics"));
    final Pattern pattern = text("pattern", null) == null ? null : Pattern.compile(text("pattern", null));
    final Map<TopicPartition, Position> owned = new TreeMap<>(
        Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition));
    long busyUntil;
    private final Set<TopicPartition> stuck = new TreeSet<>(Comparator.comparing(TopicPartition::toString));
    private final String commits = text("commits", "all");
    private final long producer = Math.abs(random.nextLong() % 1_000_000);
    private boolean isHung;

    Reader(Broker broker, JsonNode given, long seed) {
        super(broker, given, seed);
    }

    /** How it signs its commits. */
    abstract String memberId();

    abstract int epoch();

    /** Whether a partition is still to be read when its position has come. */
    abstract boolean reads(TopicPartition tp);

    /** Topics that it subscribes to, with their partitions, as far as they are there. */
    final Map<String, Integer> subscribed() {
        var found = new TreeMap<String, Integer>();
        broker.topics.forEach((name, topic) -> {
            if (names.contains(name) || pattern != null && pattern.matcher(name).matches()) found.put(name, topic.partitions);
        });
        return found;
    }

    /** How long it is until the application polls. */
    final long untilPoll() {
        return busyUntil > broker.now ? busyUntil - broker.now : random.nextInt(number("poll_ms", 400));
    }

    /** Work for so long without a poll. */
    void work(long ms) {
        busyUntil = broker.now + ms;
    }

    /** Poll and beat, and do nothing else. */
    void hang() {
        isHung = true;
    }

    void stick(String topic, int partition) {
        stuck.add(new TopicPartition(topic, partition));
    }

    /** Go to a share of what is in each partition, and by so many records from there. */
    void seek(double share, long by) {
        owned.forEach((tp, position) -> {
            long end = broker.topics.get(tp.topic()).end(broker.now);
            position.at = Math.max(0, Math.min(end, (share < 0 ? position.at : share * end) + by));
        });
    }

    private void read() {
        double perSecond = number("speed", 20_000);
        owned.forEach((tp, position) -> {
            var topic = broker.topics.get(tp.topic());
            if (topic != null && !isHung && !stuck.contains(tp)) {
                double reach = position.at + perSecond * (broker.now - position.since) / 1000;
                position.at = Math.max(position.at, Math.min(topic.end(broker.now), Math.floor(reach)));
            }
            position.since = broker.now;
        });
    }

    /** Begin where the group has committed, or where `reset` says. */
    final void take(Collection<TopicPartition> partitions) {
        if (partitions.isEmpty()) return;
        var request = new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId(group)
            .setMemberId(memberId().isEmpty() ? null : memberId()).setMemberEpoch(epoch()).setTopics(byTopic(partitions).entrySet().stream().map(e ->
                new OffsetFetchRequestData.OffsetFetchRequestTopics().setName(e.getKey()).setPartitionIndexes(e.getValue())).toList());
        ask(() -> broker.service.fetchOffsets(by(9), request, false), answer -> {
            if (answer.errorCode() != 0) {
                if (isSoonOver(Errors.forCode(answer.errorCode()))) later(between(100, 400), () -> take(partitions));
                return;
            }
            answer.topics().forEach(topic -> topic.partitions().forEach(p -> {
                var tp = new TopicPartition(topic.name(), p.partitionIndex());
                var there = broker.topics.get(topic.name());
                long end = there == null ? 0 : there.end(broker.now);
                long reset = text("reset", "earliest").equals("latest") ? end : 0;
                var position = new Position();
                position.since = broker.now;
                position.committed = p.committedOffset();
                position.at = p.committedOffset() < 0 ? reset : Math.min(end, p.committedOffset());
                if (reads(tp)) owned.put(tp, position);
            }));
        });
    }

    final boolean commitsAnything() {
        return !commits.equals("none");
    }

    /** Commit what is due, and go on. */
    final void commit(Runnable then) {
        read();
        var due = new TreeMap<TopicPartition, Long>(((TreeMap<TopicPartition, Position>) owned).comparator());
        owned.forEach((tp, position) -> {
            boolean isDue = commits.equals("all") || (long) position.at != position.committed;
            if (broker.topics.containsKey(tp.topic()) && isDue && !isHung) due.put(tp, (long) position.at);
        });
        long few = number("commit_records", 0);
        long read = due.entrySet().stream().mapToLong(e -> e.getValue() - Math.max(0, owned.get(e.getKey()).committed)).sum();
        if (few > 0 && read < few) due.clear();
        if (due.isEmpty() || !commitsAnything()) {
            then.run();
        } else if (commits.equals("transactions")) {
            commitInTransaction(due, then);
        } else {
            // It is signed by who sends it, not by who that has become when it arrives.
            var signed = request(due, memberId(), epoch(), instance);
            ask(() -> broker.service.commitOffsets(by(10), signed, BUFFERS), answer -> {
                due.forEach((tp, offset) -> {
                    if (owned.containsKey(tp)) owned.get(tp).committed = offset;
                });
                then.run();
            });
        }
    }

    /** An OffsetCommit of some offsets. */
    final OffsetCommitRequestData request(Map<TopicPartition, Long> offsets, String member, int epoch, String of) {
        return new OffsetCommitRequestData().setGroupId(group).setMemberId(member).setGenerationIdOrMemberEpoch(epoch)
            .setGroupInstanceId(of).setTopics(byTopic(offsets.keySet()).entrySet().stream().map(e ->
                new OffsetCommitRequestData.OffsetCommitRequestTopic().setName(e.getKey())
                    .setTopicId(broker.topics.get(e.getKey()).id).setPartitions(e.getValue().stream().map(p ->
                        new OffsetCommitRequestData.OffsetCommitRequestPartition().setPartitionIndex(p).setCommittedMetadata("")
                            .setCommittedOffset(offsets.get(new TopicPartition(e.getKey(), p)))).toList())).toList());
    }

    private void commitInTransaction(Map<TopicPartition, Long> due, Runnable then) {
        var request = new TxnOffsetCommitRequestData().setGroupId(group).setTransactionalId(clientId).setProducerId(producer)
            .setGenerationId(epoch()).setMemberId(memberId()).setTopics(byTopic(due.keySet()).entrySet().stream().map(e ->
                new TxnOffsetCommitRequestData.TxnOffsetCommitRequestTopic().setName(e.getKey()).setPartitions(e.getValue()
                    .stream().map(p -> new TxnOffsetCommitRequestData.TxnOffsetCommitRequestPartition().setPartitionIndex(p)
                        .setCommittedMetadata("").setCommittedOffset(due.get(new TopicPartition(e.getKey(), p)))).toList())).toList());
        boolean commitsIt = random.nextInt(100) >= number("aborts_percent", 1);
        ask(() -> broker.service.commitTransactionalOffsets(by(4), request, BUFFERS), answer -> {
            broker.endTransaction(group, producer, commitsIt);
            later(between(2, 10), then);
        });
    }

    static Map<String, List<Integer>> byTopic(Collection<TopicPartition> partitions) {
        var topics = new TreeMap<String, List<Integer>>();
        partitions.forEach(tp -> topics.computeIfAbsent(tp.topic(), t -> new ArrayList<>()).add(tp.partition()));
        topics.values().forEach(Collections::sort);
        return topics;
    }
}

/** A consumer with assign(): it is no member, and commits at its checkpoints. */
final class Assigner extends Reader {
    Assigner(Broker broker, JsonNode given, long seed) {
        super(broker, given, seed);
    }

    @Override
    void start() {
        var all = new ArrayList<TopicPartition>();
        subscribed().forEach((topic, count) -> {
            for (int p = 0; p < count; p++) all.add(new TopicPartition(topic, p));
        });
        later(between(50, 900), () -> take(all));
        later(number("commit_ms", 5_000), this::checkpoint);
    }

    private void checkpoint() {
        commit(() -> { });
        later(number("commit_ms", 5_000) + between(0, 40), this::checkpoint);
    }

    @Override
    void stop() {
        isAlive = false;
    }

    @Override
    String memberId() {
        return "";
    }

    @Override
    int epoch() {
        return -1;
    }

    @Override
    boolean reads(TopicPartition tp) {
        return true;
    }
}
