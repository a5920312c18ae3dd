package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ConsumerGroupHeartbeatRequestData;
import org.apache.kafka.common.message.ShareGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.protocol.Errors;

/** A member by one of the new protocols: all that it does is a heartbeat. */
abstract class Beater extends Reader {
    final String memberId = new Uuid(random.nextLong(), random.nextLong()).toString();
    int epoch;
    /** What is done later is done only if it has not been fenced meanwhile. */
    int session;
    /** Whether the next heartbeat says everything, and whether it says what the member owns. */
    boolean saysAll;
    boolean saysOwned;
    private int beats;
    private boolean hasCommits;

    Beater(Broker broker, JsonNode given, long seed) {
        super(broker, given, seed);
    }

    /** Send a heartbeat; the answer goes to `answered`. */
    abstract void send(int session);

    /** Forget what it owned. */
    abstract void reset();

    @Override
    final String memberId() {
        return memberId;
    }

    @Override
    final int epoch() {
        return epoch;
    }

    @Override
    final void start() {
        later(between(30, 400), this::join);
    }

    final void join() {
        epoch = 0;
        saysAll = true;
        owned.clear();
        reset();
        session++;
        beat();
        if (!hasCommits) later(number("commit_ms", 5_000), this::commits);
        hasCommits = true;
    }

    final void whileSession(long delay, Runnable action) {
        later(delay, () -> session, action);
    }

    final void resubscribe(Set<String> topics) {
        names = topics;
        saysAll = true;
        beat();
    }

    final void beat() {
        beats++;
        send(session);
        saysAll = false;
        saysOwned = false;
    }

    /** Take the answer to the last heartbeat; return whether it was a yes. */
    final boolean answered(int sentIn, short code, int newEpoch, int interval) {
        if (session != sentIn) return false;
        var error = Errors.forCode(code);
        int number = beats;
        whileSession(error == Errors.NONE ? interval : 500, () -> {
            if (beats == number) beat();
        });
        switch (error) {
            case NONE -> epoch = newEpoch;
            case UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH -> {
                session++;
                owned.clear();
                reset();
                whileSession(untilPoll(), this::join);
            }
            case UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR -> isAlive = false;
            default -> saysAll = true;
        }
        return error == Errors.NONE;
    }

    private void commits() {
        if (epoch > 0 && busyUntil <= broker.now) commit(() -> { });
        later(number("commit_ms", 5_000), this::commits);
    }

    @Override
    void work(long ms) {
        super.work(ms);
        if (ms <= number("max_poll_ms", 300_000)) return;
        whileSession(number("max_poll_ms", 300_000), () -> {
            leave();
            whileSession(untilPoll(), this::join);
        });
    }

    private void leave() {
        epoch = instance == null ? -1 : -2;
        send(session++);
        owned.clear();
        reset();
    }

    @Override
    final void stop() {
        Runnable close = () -> {
            leave();
            isAlive = false;
        };
        if (epoch > 0) commit(close);
        else close.run();
    }
}

/** A consumer of the consumer protocol, as ConsumerMembershipManager is one. */
final class ModernConsumer extends Beater {
    private final Set<TopicPartition> mine = new HashSet<>();
    private Set<TopicPartition> target;
    private boolean isReconciling;

    ModernConsumer(Broker broker, JsonNode given, long seed) {
        super(broker, given, seed);
    }

    @Override
    void reset() {
        mine.clear();
        target = null;
        isReconciling = false;
    }

    @Override
    void send(int sentIn) {
        var request = new ConsumerGroupHeartbeatRequestData().setGroupId(group).setMemberId(memberId).setMemberEpoch(epoch)
            .setInstanceId(instance);
        if (saysAll) {
            request.setRebalanceTimeoutMs(number("max_poll_ms", 300_000)).setServerAssignor(text("assignor", null));
            if (pattern == null) request.setSubscribedTopicNames(new ArrayList<>(names));
            else request.setSubscribedTopicRegex(pattern.pattern());
        }
        if (saysAll || saysOwned) {
            request.setTopicPartitions(byTopic(mine).entrySet().stream().filter(e -> broker.topics.containsKey(e.getKey()))
                .map(e -> new ConsumerGroupHeartbeatRequestData.TopicPartitions()
                    .setTopicId(broker.topics.get(e.getKey()).id).setPartitions(e.getValue())).toList());
        }
        ask(() -> broker.service.consumerGroupHeartbeat(by(1), request), answer -> {
            boolean isFine = answered(sentIn, answer.errorCode(), answer.memberEpoch(), answer.heartbeatIntervalMs());
            if (!isFine || answer.assignment() == null) return;
            target = new HashSet<>();
            answer.assignment().topicPartitions().forEach(t -> broker.topics.values().stream()
                .filter(known -> known.id.equals(t.topicId()))
                .forEach(known -> t.partitions().forEach(p -> target.add(new TopicPartition(known.name, p)))));
            reconcile();
        });
    }

    private void reconcile() {
        if (isReconciling || target == null) return;
        var goal = target;
        var revoked = new HashSet<>(mine);
        revoked.removeAll(goal);
        isReconciling = true;
        Runnable take = () -> {
            mine.retainAll(goal);
            owned.keySet().removeAll(revoked);
            whileSession(revoked.isEmpty() ? untilPoll() : 0, () -> {
                var added = new HashSet<>(goal);
                added.removeAll(mine);
                mine.addAll(added);
                take(added);
                isReconciling = false;
                saysOwned = true;
                if (target == goal) target = null;
                beat();
                reconcile();
            });
        };
        // Callbacks run in a poll, behind a commit of what is given up.
        if (revoked.isEmpty()) take.run();
        else whileSession(untilPoll() + number("revoke_ms", 0), () -> commit(() -> whileSession(0, take)));
    }

    @Override
    boolean reads(TopicPartition tp) {
        return mine.contains(tp);
    }
}

/** A consumer of a share group: the coordinator tells it what to read, and it has nothing to give up. */
final class ShareConsumer extends Beater {
    ShareConsumer(Broker broker, JsonNode given, long seed) {
        super(broker, given, seed);
    }

    @Override
    void reset() {}

    @Override
    void send(int sentIn) {
        var request = new ShareGroupHeartbeatRequestData().setGroupId(group).setMemberId(memberId)
            .setMemberEpoch(Math.max(-1, epoch)).setSubscribedTopicNames(saysAll ? new ArrayList<>(names) : null);
        ask(() -> broker.service.shareGroupHeartbeat(by(1), request), answer ->
            answered(sentIn, answer.errorCode(), answer.memberEpoch(), answer.heartbeatIntervalMs()));
    }

    @Override
    boolean reads(TopicPartition tp) {
        return false;
    }
}

/** A thread of Kafka Streams by the streams protocol: one subtopology reads, the other one counts by key. */
final class StreamsMember extends Beater {
    private final String repartition = group + "-by-key-repartition";
    private Map<String, Set<Integer>> active = new TreeMap<>();
    private Map<String, Set<Integer>> standby = new TreeMap<>();

    StreamsMember(Broker broker, JsonNode given, long seed) {
        super(broker, given, seed);
    }

    @Override
    void reset() {
        active = new TreeMap<>();
        standby = new TreeMap<>();
    }

    private StreamsGroupHeartbeatRequestData.Topology topology() {
        var reads = new StreamsGroupHeartbeatRequestData.Subtopology().setSubtopologyId("0")
            .setSourceTopics(new ArrayList<>(names)).setRepartitionSinkTopics(List.of(repartition));
        var counts = new StreamsGroupHeartbeatRequestData.Subtopology().setSubtopologyId("1")
            .setRepartitionSourceTopics(List.of(new StreamsGroupHeartbeatRequestData.TopicInfo().setName(repartition)))
            .setStateChangelogTopics(List.of(new StreamsGroupHeartbeatRequestData.TopicInfo().setName(group + "-counts-changelog")));
        return new StreamsGroupHeartbeatRequestData.Topology().setEpoch(0).setSubtopologies(List.of(reads, counts));
    }

    @Override
    void send(int sentIn) {
        var request = new StreamsGroupHeartbeatRequestData().setGroupId(group).setMemberId(memberId)
            .setMemberEpoch(Math.max(-1, epoch));
        if (saysAll) {
            request.setRebalanceTimeoutMs(number("max_poll_ms", 300_000)).setProcessId(text("host", "")).setClientTags(List.of());
            if (epoch == 0) request.setTopology(topology());
        }
        if (saysAll || saysOwned) {
            request.setActiveTasks(said(active)).setStandbyTasks(said(standby)).setWarmupTasks(List.of());
        }
        ask(() -> broker.service.streamsGroupHeartbeat(by(0), request), result -> {
            result.creatableTopics().forEach((name, topic) -> broker.in(between(20, 200), () -> {
                if (!broker.topics.containsKey(name)) broker.create(name, topic.numPartitions(), 2);
            }));
            var answer = result.data();
            boolean isFine = answered(sentIn, answer.errorCode(), answer.memberEpoch(), answer.heartbeatIntervalMs());
            if (!isFine || answer.activeTasks() == null) return;
            var told = heard(answer.activeTasks());
            var copies = heard(answer.standbyTasks());
            // Tasks are closed, opened and restored before the member says that it has them.
            whileSession(between(50, 2_000), () -> {
                active = told;
                standby = copies;
                var all = new HashSet<TopicPartition>();
                // A topic of a task may have fewer partitions than there are tasks.
                told.forEach((sub, parts) -> (sub.equals("0") ? names : Set.of(repartition)).forEach(topic -> parts.stream()
                    .filter(p -> broker.topics.containsKey(topic) && p < broker.topics.get(topic).partitions)
                    .forEach(p -> all.add(new TopicPartition(topic, p)))));
                owned.keySet().retainAll(all);
                all.removeAll(owned.keySet());
                take(all);
                saysOwned = true;
                beat();
            });
        });
    }

    private static List<StreamsGroupHeartbeatRequestData.TaskIds> said(Map<String, Set<Integer>> tasks) {
        return tasks.entrySet().stream().map(e -> new StreamsGroupHeartbeatRequestData.TaskIds()
            .setSubtopologyId(e.getKey()).setPartitions(new ArrayList<>(e.getValue()))).toList();
    }

    private static Map<String, Set<Integer>> heard(List<StreamsGroupHeartbeatResponseData.TaskIds> tasks) {
        var found = new TreeMap<String, Set<Integer>>();
        tasks.forEach(t -> found.put(t.subtopologyId(), new TreeSet<>(t.partitions())));
        return found;
    }

    @Override
    boolean reads(TopicPartition tp) {
        var parts = active.get(names.contains(tp.topic()) ? "0" : "1");
        return parts != null && parts.contains(tp.partition());
    }
}
