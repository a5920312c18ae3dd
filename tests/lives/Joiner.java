package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.HeartbeatRequestData;
import org.apache.kafka.common.message.JoinGroupRequestData;
import org.apache.kafka.common.message.JoinGroupResponseData;
import org.apache.kafka.common.message.LeaveGroupRequestData;
import org.apache.kafka.common.message.SyncGroupRequestData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.Utils;

/** A member by the classic protocol, as AbstractCoordinator is one: it joins, syncs and beats. */
abstract class Joiner extends Reader {
    enum Phase { OUT, JOINING, SYNCING, IN }

    String memberId = "";
    int generation = -1;
    Phase phase = Phase.OUT;
    boolean isLeader;
    /** What is done later is done only if no other attempt has begun meanwhile. */
    int attempt;
    private int beats;
    private boolean isAboutToJoin;

    Joiner(Broker broker, JsonNode given, long seed) {
        super(broker, given, seed);
    }

    abstract String protocolType();

    /** What it sends with its JoinGroup. */
    abstract JoinGroupRequestData.JoinGroupRequestProtocolCollection protocols();

    /** Assign, as the leader. */
    abstract Map<String, ByteBuffer> lead(JoinGroupResponseData answer);

    abstract void assigned(String protocol, ByteBuffer assignment);

    /** Give up what has to be given up before it joins, and go on. */
    abstract void prepare(Runnable then);

    abstract long untilJoin();

    @Override
    final String memberId() {
        return memberId;
    }

    @Override
    final int epoch() {
        return generation;
    }

    final void whileAttempt(long delay, Runnable action) {
        later(delay, () -> attempt, action);
    }

    /** Join again, as soon as the application lets it. */
    final void rejoin() {
        if (isAboutToJoin || phase == Phase.JOINING) return;
        isAboutToJoin = true;
        whileAttempt(untilJoin(), this::join);
    }

    final void join() {
        isAboutToJoin = true;
        attempt++;
        int mine = attempt;
        Runnable send = () -> {
            if (attempt == mine) sendJoin();
        };
        prepare(send);
    }

    private void sendJoin() {
        phase = Phase.JOINING;
        isLeader = false;
        isAboutToJoin = false;
        attempt++;
        int mine = attempt;
        beats++;
        var request = new JoinGroupRequestData().setGroupId(group).setMemberId(memberId).setGroupInstanceId(instance)
            .setSessionTimeoutMs(number("session_ms", 45_000)).setRebalanceTimeoutMs(number("max_poll_ms", 300_000))
            .setProtocolType(protocolType()).setProtocols(protocols()).setReason("");
        ask(() -> broker.service.joinGroup(by(9), request, BUFFERS), answer -> {
            if (attempt == mine) joined(answer);
        });
    }

    private void joined(JoinGroupResponseData answer) {
        switch (Errors.forCode(answer.errorCode())) {
            case NONE -> {
                phase = Phase.SYNCING;
                memberId = answer.memberId();
                generation = answer.generationId();
                beat(++beats);
                isLeader = answer.leader().equals(memberId);
                if (!isLeader) {
                    sync(answer.protocolName(), Map.of());
                } else if (number("assign_ms", 3) >= 0) {
                    whileAttempt(number("assign_ms", 3), () ->
                        sync(answer.protocolName(), answer.skipAssignment() ? Map.of() : lead(answer)));
                }
            }
            case MEMBER_ID_REQUIRED -> {
                memberId = answer.memberId();
                sendJoin();
            }
            case UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID -> startOver(Errors.forCode(answer.errorCode()));
            case INCONSISTENT_GROUP_PROTOCOL -> isAlive = false;
            default -> whileAttempt(between(100, 400), this::sendJoin);
        }
    }

    private void sync(String protocol, Map<String, ByteBuffer> assignment) {
        var request = new SyncGroupRequestData().setGroupId(group).setMemberId(memberId).setGroupInstanceId(instance)
            .setGenerationId(generation).setProtocolType(protocolType()).setProtocolName(protocol)
            .setAssignments(assignment.entrySet().stream().map(e -> new SyncGroupRequestData.SyncGroupRequestAssignment()
                .setMemberId(e.getKey()).setAssignment(Utils.toArray(e.getValue().duplicate()))).toList());
        int mine = attempt;
        ask(() -> broker.service.syncGroup(by(5), request, BUFFERS), answer -> {
            var error = Errors.forCode(answer.errorCode());
            if (attempt != mine) return;
            if (error == Errors.NONE) {
                phase = Phase.IN;
                attempt++;
                assigned(protocol, ByteBuffer.wrap(answer.assignment()));
            } else {
                startOver(error);
            }
        });
    }

    /** Begin to join again, after the coordinator has said no. */
    private void startOver(Errors error) {
        phase = Phase.OUT;
        isAboutToJoin = true;
        if (error == Errors.FENCED_INSTANCE_ID) isAlive = false;
        if (error == Errors.UNKNOWN_MEMBER_ID) memberId = "";
        if (error == Errors.UNKNOWN_MEMBER_ID || error == Errors.ILLEGAL_GENERATION) generation = -1;
        whileAttempt(isSoonOver(error) ? between(100, 400) : between(0, 100), this::join);
    }

    private void beat(int mine) {
        later(number("heartbeat_ms", 3_000), () -> {
            if (beats != mine) return;
            var request = new HeartbeatRequestData().setGroupId(group).setMemberId(memberId).setGroupInstanceId(instance)
                .setGenerationId(generation);
            ask(() -> broker.service.heartbeat(by(4), request), answer -> {
                if (beats == mine) heard(Errors.forCode(answer.errorCode()));
            });
            beat(mine);
        });
    }

    private void heard(Errors error) {
        if (error == Errors.REBALANCE_IN_PROGRESS && phase == Phase.IN) rejoin();
        if (error == Errors.FENCED_INSTANCE_ID) isAlive = false;
        if (error == Errors.UNKNOWN_MEMBER_ID) memberId = "";
        if (error == Errors.UNKNOWN_MEMBER_ID || error == Errors.ILLEGAL_GENERATION) {
            generation = -1;
            phase = Phase.OUT;
            beats++;
            rejoin();
        }
    }

    final void leave() {
        attempt++;
        beats++;
        isAboutToJoin = false;
        phase = Phase.OUT;
        if (instance == null && !memberId.isEmpty()) {
            var request = new LeaveGroupRequestData().setGroupId(group)
                .setMembers(List.of(new LeaveGroupRequestData.MemberIdentity().setMemberId(memberId)));
            ask(() -> broker.service.leaveGroup(by(5), request), answer -> { });
        }
        // A static member says nothing, and forgets who it was all the same (AbstractCoordinator.maybeLeaveGroup).
        memberId = "";
        generation = -1;
    }
}

/** A consumer of the classic protocol, as ConsumerCoordinator is one, with Kafka's own assignors. */
final class ClassicConsumer extends Joiner {
    private final List<ConsumerPartitionAssignor> assignors = new ArrayList<>();
    private Set<TopicPartition> assignment = Set.of();
    private Map<String, Integer> ledOver;
    private Set<String> joinedWith = Set.of();

    ClassicConsumer(Broker broker, JsonNode given, long seed) {
        super(broker, given, seed);
        for (String name : texts("assignors")) {
            assignors.add(switch (name) {
                case "range" -> new RangeAssignor();
                case "roundrobin" -> new RoundRobinAssignor();
                case "sticky" -> new StickyAssignor();
                default -> new CooperativeStickyAssignor();
            });
        }
    }

    @Override
    void start() {
        broker.watchers.add(topic -> {
            // Metadata are refreshed every five minutes; fetches from a topic that is gone fail at once.
            boolean isGone = !broker.topics.containsKey(topic) && owned.keySet().stream().anyMatch(tp -> tp.topic().equals(topic));
            later(isGone ? between(200, 6_000) : between(0, 300_000), this::refreshed);
        });
        later(between(30, 400), this::join);
    }

    private void refreshed() {
        boolean isOther = isLeader && ledOver != null && !ledOver.equals(partitionsOf(ledOver.keySet()));
        if (phase == Phase.IN && (isOther || pattern != null && !joinedWith.equals(subscribed().keySet()))) rejoin();
    }

    private Map<String, Integer> partitionsOf(Set<String> topics) {
        var found = new TreeMap<String, Integer>();
        topics.forEach(t -> found.put(t, broker.topics.containsKey(t) ? broker.topics.get(t).partitions : 0));
        return found;
    }

    void resubscribe(Set<String> topics) {
        names = topics;
        rejoin();
    }

    @Override
    long untilJoin() {
        return untilPoll();
    }

    @Override
    void work(long ms) {
        super.work(ms);
        if (ms <= number("max_poll_ms", 300_000)) return;
        later(number("max_poll_ms", 300_000), () -> {
            if (phase == Phase.OUT) return;
            leave();
            rejoin();
        });
    }

    @Override
    String protocolType() {
        return "consumer";
    }

    @Override
    JoinGroupRequestData.JoinGroupRequestProtocolCollection protocols() {
        var topics = new ArrayList<>(pattern == null ? names : subscribed().keySet());
        joinedWith = new HashSet<>(topics);
        var all = new JoinGroupRequestData.JoinGroupRequestProtocolCollection();
        for (var assignor : assignors) {
            var subscription = new ConsumerPartitionAssignor.Subscription(topics,
                assignor.subscriptionUserData(joinedWith), new ArrayList<>(owned.keySet()), generation, Optional.empty());
            all.add(new JoinGroupRequestData.JoinGroupRequestProtocol().setName(assignor.name())
                .setMetadata(Utils.toArray(ConsumerProtocol.serializeSubscription(subscription))));
        }
        return all;
    }

    private boolean isCooperative() {
        return assignors.stream().allMatch(a -> a instanceof CooperativeStickyAssignor);
    }

    @Override
    void prepare(Runnable then) {
        boolean keeps = isCooperative() && generation >= 0;
        Runnable giveUp = () -> {
            if (!keeps) owned.clear();
            else owned.keySet().removeIf(tp -> !subscribed().containsKey(tp.topic()));
            then.run();
        };
        long takes = keeps || owned.isEmpty() ? 0 : number("revoke_ms", 0);
        if (phase == Phase.IN && !owned.isEmpty()) commit(() -> later(takes, giveUp));
        else giveUp.run();
    }

    @Override
    Map<String, ByteBuffer> lead(JoinGroupResponseData answer) {
        var subscriptions = new HashMap<String, ConsumerPartitionAssignor.Subscription>();
        var topics = new HashSet<String>();
        for (var member : answer.members()) {
            var subscription = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(member.metadata()));
            subscription.setGroupInstanceId(Optional.ofNullable(member.groupInstanceId()));
            subscriptions.put(member.memberId(), subscription);
            topics.addAll(subscription.topics());
        }
        ledOver = partitionsOf(topics);
        var assigned = new HashMap<String, ByteBuffer>();
        var plan = new TreeMap<>(by(answer.protocolName())
            .assign(cluster(), new ConsumerPartitionAssignor.GroupSubscription(subscriptions)).groupAssignment());
        if (number("gives_twice", 0) > 0) giveTwice(plan);
        plan.forEach((id, part) -> assigned.put(id, ConsumerProtocol.serializeAssignment(part)));
        return assigned;
    }

    /** What the first member has first, the last one gets, too. */
    private static void giveTwice(TreeMap<String, ConsumerPartitionAssignor.Assignment> plan) {
        var last = plan.lastEntry().getValue();
        plan.values().stream().flatMap(given -> given.partitions().stream()).limit(1).forEach(tp -> {
            var all = new HashSet<>(last.partitions());
            all.add(tp);
            plan.put(plan.lastKey(), new ConsumerPartitionAssignor.Assignment(new ArrayList<>(all), last.userData()));
        });
    }

    private ConsumerPartitionAssignor by(String name) {
        return assignors.stream().filter(a -> a.name().equals(name)).findFirst().orElseThrow();
    }

    private Cluster cluster() {
        var node = new Node(0, "broker", 9092);
        var infos = new ArrayList<PartitionInfo>();
        broker.topics.values().forEach(topic -> {
            for (int p = 0; p < topic.partitions; p++) infos.add(new PartitionInfo(topic.name, p, node, new Node[] {node}, new Node[] {node}));
        });
        return new Cluster("lives", List.of(node), infos, Set.of(), Set.of());
    }

    @Override
    void assigned(String protocol, ByteBuffer bytes) {
        var given = ConsumerProtocol.deserializeAssignment(bytes);
        assignment = new HashSet<>(given.partitions());
        by(protocol).onAssignment(given, new ConsumerGroupMetadata(group, generation, memberId, Optional.ofNullable(instance)));
        boolean givesUp = owned.keySet().removeIf(tp -> !assignment.contains(tp));
        take(assignment.stream().filter(tp -> !owned.containsKey(tp)).toList());
        whileAttempt(number("commit_ms", 5_000), this::commits);
        // What is asked back is given up; then it joins once more.
        if (givesUp && isCooperative()) whileAttempt(number("revoke_ms", 0), this::join);
        // A static member that came back with other topics was given those of before (ConsumerCoordinator.onJoinComplete).
        boolean isOfBefore = !assignment.stream().allMatch(tp -> joinedWith.contains(tp.topic()));
        if (isOfBefore) whileAttempt(between(50, 150), this::join);
    }

    private void commits() {
        long wait = number("commit_ms", 5_000);
        whileAttempt(wait, this::commits);
        whileAttempt(Math.max(0, busyUntil - broker.now), () -> {
            if (phase == Phase.IN) commit(() -> { });
        });
    }

    @Override
    boolean reads(TopicPartition tp) {
        return phase == Phase.IN && assignment.contains(tp);
    }

    @Override
    void stop() {
        Runnable close = () -> {
            leave();
            isAlive = false;
        };
        if (phase == Phase.IN) commit(close);
        else close.run();
    }
}
