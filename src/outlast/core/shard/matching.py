"""Matching: bringing waiting work and polls together.

Done when a batch is about to be taken, not at each input: what has gathered meanwhile then goes out in few answers, and
leases of one batch cost one commit.
"""

from outlast.core import limits
from outlast.core.errors import Busy
from outlast.core.inputs import Poll, StopWorker, TaskToken
from outlast.core.machines.task import suspect as is_suspect
from outlast.core.replies import TaskLease, Work, WorkflowTask
from outlast.core.shard import attempts, offers, queries, turns
from outlast.core.shard.damage import stands_still
from outlast.core.shard.fairness import given_out
from outlast.core.shard.readiness import put_in_window, window_of
from outlast.core.shard.state import QueueName, Shard, TaskQueue, WaitingPoll, WorkerSeen, poll_key
from outlast.core.shard.window import Window
from outlast.core.task import LEASED, Task


def hold(shard: Shard, poll: Poll, *, namespace: str, ticket: object) -> None:
    """Take a poll in; it is answered when there is work, or when its wait is over.

    Raises:
        Busy: as many polls are held as may be.
    """
    seen = shard.worker(namespace, poll.worker)
    if seen.stopped:
        shard.answer(ticket, Work())
        return
    _note_types(shard, poll, namespace)
    key = poll_key(namespace, poll.worker, poll.poll_id)
    held = shard.poll_of.get(key)
    if held is not None:
        # The caller asks again because it thinks the first request lost: that one gets an empty answer.
        drop(shard, held)
        shard.answer(held.ticket, Work())
    elif key in shard.poll_answers:
        again = _answer_again(shard, key, poll.poll_id)
        if again is not None:
            shard.answer(ticket, again)
            return
    if len(shard.poll_of) >= shard.config.polls_max:
        raise Busy("busy", f"{shard.config.polls_max} polls are held.", remedy="Poll again a little later.")
    waiting = WaitingPoll(ticket, namespace, poll, shard.now + max(poll.wait, 0))
    shard.poll_of[key] = waiting
    shard.poll_of_ticket[ticket] = waiting
    seen.polls += 1
    if shard.held and (poll.task_types, poll.workflow_types) not in seen.told:
        offers.try_soon(shard, poll, namespace=namespace)
    seen.tell(poll)
    for queue in poll.queues:
        shard.polls.setdefault((namespace, queue), {})[key] = waiting
        shard.hot[namespace, queue] = None
    shard.expire_at(waiting.until, "poll", key, 0)


def _note_types(shard: Shard, poll: Poll, namespace: str) -> None:
    """Note what is polled for, which descriptions tell of for a minute.

    Raises:
        Busy: as many pairs of queue and type were polled for in the last minute as may be.
    """
    seen = shard.types_seen
    while seen and shard.now - next(iter(seen.values())) >= limits.POLLED_LATELY:
        seen.popitem(last=False)
    kinds = [f"w:{name}" for name in poll.workflow_types] + [f"t:{name}" for name in poll.task_types]
    names = [(namespace, queue, kind) for queue in poll.queues for kind in kinds]
    most = shard.config.names_max
    if len(seen) + len(names) > most and len(seen) + sum(name not in seen for name in names) > most:
        raise Busy(
            "busy",
            f"Workers poll for {len(seen):,} pairs of queue and type; {most:,} are allowed.",
            remedy="Poll for fewer queues or types, or again in a minute.",
        )
    for name in names:
        seen[name] = shard.now
        seen.move_to_end(name)
    for queue in poll.queues:
        for type_name in poll.task_types:
            window_of(shard, (namespace, queue, type_name))


def drop(shard: Shard, waiting: WaitingPoll) -> None:
    """Hold a poll no longer."""
    key = waiting.key
    shard.poll_of.pop(key, None)
    shard.poll_of_ticket.pop(waiting.ticket, None)
    seen = shard.workers.get((waiting.namespace, waiting.poll.worker))
    if seen is not None:
        seen.polls = max(0, seen.polls - 1)
    for queue in waiting.poll.queues:
        held = shard.polls.get((waiting.namespace, queue))
        if held is not None:
            held.pop(key, None)
            if not held:
                del shard.polls[waiting.namespace, queue]


def end_wait(shard: Shard, key: str) -> None:
    """Answer a poll whose wait is over."""
    waiting = shard.poll_of.get(key)
    if waiting is not None and waiting.until <= shard.now:
        drop(shard, waiting)
        shard.answer(waiting.ticket, Work())


def stop_worker(shard: Shard, request: StopWorker, *, namespace: str) -> None:
    """Give this worker nothing more; its runs are offered to any."""
    name = (namespace, request.worker)
    shard.worker(*name).stopped = True
    for waiting in [held for held in shard.poll_of.values() if (held.namespace, held.poll.worker) == name]:
        drop(shard, waiting)
        shard.answer(waiting.ticket, Work())
    for key in [key for key in shard.sticky if (key[0], key[3]) == name]:
        for run_id in shard.sticky.pop(key):
            offers.unstick_from(shard, run_id, request.worker)


def match(shard: Shard) -> None:
    """Give out what can be given out, queue by queue, polls in the order in which they came, until the batch is full."""
    if shard.queries:
        queries.wake(shard)
    while shard.hot and not shard.batch_is_full():
        queue = next(iter(shard.hot))
        del shard.hot[queue]
        for waiting in list(shard.polls.get(queue, {}).values()):
            if shard.batch_is_full():
                shard.hot[queue] = None  # the next batch goes on
                return
            if waiting.key in shard.poll_of:
                _serve(shard, waiting)


def _serve(shard: Shard, waiting: WaitingPoll) -> None:
    poll = waiting.poll
    name = (waiting.namespace, poll.worker)
    seen = shard.workers.get(name) or shard.worker(*name)
    work_turns: list[WorkflowTask] = []
    leased: list[TaskLease] = []
    for queue in poll.queues:
        room = poll.workflow_slots - len(work_turns)
        if room > 0:
            work_turns += _give_turns(shard, (waiting.namespace, queue), poll, room)
    if poll.slots > 0:
        leased = _lease_tasks(shard, waiting, seen)
    asked = queries.give(shard, waiting) if shard.queries else ()
    if not leased and not work_turns and not asked:
        return
    drop(shard, waiting)
    _remember(shard, waiting.key, leased, work_turns)
    shard.answer(waiting.ticket, Work(tasks=tuple(leased), workflow_tasks=tuple(work_turns), queries=asked))


def _give_turns(shard: Shard, queue: QueueName, poll: Poll, room: int) -> list[WorkflowTask]:
    """Give out up to ``room`` turns: of runs that wait for this worker first, then of those that any may have."""
    given: list[WorkflowTask] = []
    worker = poll.worker
    for type_name in poll.workflow_types:
        key = (*queue, type_name, worker)
        mine = shard.sticky.get(key)
        if mine is not None:
            while len(given) < room and (run := offers.take(shard, mine, worker=worker)) is not None:
                given.append(turns.give(shard, run, poll))
            if not mine:
                del shard.sticky[key]
    for type_name in poll.workflow_types:
        offered = shard.offers.get((*queue, type_name))
        if offered is not None:
            while len(given) < room and (run := offers.take(shard, offered, worker="")) is not None:
                given.append(turns.give(shard, run, poll))
            if not offered:
                del shard.offers[*queue, type_name]
    return given


def _lease_tasks(shard: Shard, waiting: WaitingPoll, seen: WorkerSeen) -> list[TaskLease]:
    poll, leased = waiting.poll, list[TaskLease]()
    if seen.suspect:
        suspect = shard.tasks.get(seen.suspect)
        if suspect is not None and suspect.state is LEASED:
            return leased  # a suspect runs alone: nothing goes beside it
        if suspect is not None and suspect.ready and shard.hosts.get(seen.suspect) == seen.name:
            if seen.leases or _overdue(shard, suspect):
                return leased  # it starts here once the worker is idle
            del shard.hosts[seen.suspect]
            return [_lease(shard, suspect, poll)]
        shard.hosts.pop(seen.suspect, None)
        seen.suspect = ""
    for queue in poll.queues:
        windows = _windows(shard, waiting.namespace, queue, poll)
        while len(leased) < poll.slots and shard.gather.bytes < shard.config.batch_bytes_max:
            task = _next_task(shard, windows)
            if task is None:
                break
            if task.status.lost_in_a_row and is_suspect(task):
                if leased or seen.leases:
                    _host(shard, task, seen)
                    return leased
                return [_lease(shard, task, poll)]
            leased.append(_lease(shard, task, poll))
    return leased


def _host(shard: Shard, task: Task, seen: WorkerSeen) -> None:
    """Have a worker run a suspect task alone as soon as it is idle; until then nothing new goes to it."""
    seen.suspect = task.task_id
    shard.hosts[task.task_id] = seen.name
    shard.expire_at(shard.now + limits.HOST_QUIET, "host", task.task_id, 0)


def look_at_host(shard: Shard, task_id: str) -> None:
    """Let any worker have a suspect task whose host no longer polls."""
    name = shard.hosts.get(task_id)
    if name is None:
        return
    seen = shard.workers.get(name)
    if seen is not None and not seen.stopped and (seen.polls or shard.now - seen.seen_at < limits.HOST_QUIET):
        shard.expire_at(shard.now + limits.HOST_QUIET, "host", task_id, 0)
        return
    del shard.hosts[task_id]
    if seen is not None:
        seen.suspect = ""
    task = shard.tasks.get(task_id)
    if task is not None and task.ready:
        shard.gather.touch_task(task)
        put_in_window(shard, task)


def _windows(shard: Shard, namespace: str, queue: str, poll: Poll) -> list[tuple[TaskQueue, Window[str]]]:
    names = [(namespace, queue, type_name) for type_name in poll.task_types]
    return [(name, shard.ready[name]) for name in names if name in shard.ready]


def _next_task(shard: Shard, windows: list[tuple[TaskQueue, Window[str]]]) -> Task | None:
    """Take the ready task with the smallest order key among ``windows``, those of the types that the worker knows."""
    best = None
    for name, window in windows:
        heap = window.heap
        while heap and not _stands(shard, heap[0][1], heap[0][0][0]):
            window.pop()
        if window.low is not None:
            if window.wants_page():
                shard.short.append(name)
            if heap and not window.covers(heap[0][0]):
                continue  # it waits for the page on its way: there may be one before it
        if heap and (best is None or heap[0][0] < best.heap[0][0]):
            best = window
    if best is None:
        return None
    task = shard.tasks[best.pop()]
    task.in_window = False
    if best.wants_page():
        shard.short.append((task.namespace, task.queue, task.type))
    return task


def _stands(shard: Shard, task_id: str, order_key: int) -> bool:
    task = shard.tasks.get(task_id)
    if task is None or not task.ready or task.order_key != order_key or task_id in shard.hosts:
        return False
    if task.run_id and stands_still(shard, task):
        return False
    spec = task.spec
    return not (spec.start_by or spec.close_by) or not _overdue(shard, task)


def _overdue(shard: Shard, task: Task) -> bool:
    """Return whether no attempt may start any more; the timer that ends the task is on its way."""
    late_to_start = 0 < task.start_by <= shard.now and task.attempt == 0
    return late_to_start or 0 < task.close_by <= shard.now


def _lease(shard: Shard, task: Task, poll: Poll) -> TaskLease:
    attempts.lease(shard, task, worker=poll.worker, identity=poll.identity, build=poll.build, poll_id=poll.poll_id)
    given_out(shard, task)
    return lease_of(shard, task)


def lease_of(shard: Shard, task: Task) -> TaskLease:
    """Return what the worker that holds ``task`` is told."""
    spec, status = task.spec, task.status
    attempts_max = spec.retry.attempts_max
    return TaskLease(
        token=TaskToken(task.task_id, task.lease),
        type=task.type,
        queue=task.queue,
        attempt=task.attempt,
        attempts_max=attempts_max,
        input=spec.input,
        headers=spec.headers,
        operation_id=spec.operation_id,
        workflow_id=spec.workflow_id,
        run_id=task.run_id,
        activity_id=spec.activity_id,
        lease=shard.config.task_lease,
        start_to_close=spec.start_to_close,
        heartbeat=spec.heartbeat,
        details=status.details,
        last_failure=status.failure,
        enqueued_at=task.enqueued_at,
        started_at=status.started_at,
        deadline=_deadline(task),
        begin_needed=attempts_max == 1,
        priority=spec.priority,
    )


def _remember(shard: Shard, key: str, leased: list[TaskLease], given: list[WorkflowTask]) -> None:
    """Keep what a poll was given, and forget the oldest answers while there are too many of them or of their leases.

    A repeat of a forgotten poll is a new one; its old leases run out.
    """
    answers, config = shard.poll_answers, shard.config
    before = answers.pop(key, ([], []))
    answers[key] = (
        [item.token.task_id for item in leased],
        [(item.token.run_id, item.token.dispatch) for item in given],
    )
    shard.poll_leases += len(leased) + len(given) - len(before[0]) - len(before[1])
    while len(answers) > config.poll_answers_max or (shard.poll_leases > config.poll_leases_max and len(answers) > 1):
        _, (task_ids, turned) = answers.popitem(last=False)
        shard.poll_leases -= len(task_ids) + len(turned)


def _answer_again(shard: Shard, key: str, poll_id: str) -> Work | None:
    """Return the same leases as before, those that still run; None when there are none: it is then a new poll."""
    task_ids, given = shard.poll_answers[key]
    leased = [
        lease_of(shard, task)
        for task_id in task_ids
        if (task := shard.tasks.get(task_id)) is not None and task.state is LEASED and task.status.poll_id == poll_id
    ]
    work_turns = [
        turns.shown(shard, run, timeout=run.turn.deadline - run.turn.started_at)
        for run_id, dispatch in given
        if (run := shard.runs.get(run_id)) is not None and run.turn is not None and run.turn.dispatch == dispatch
    ]
    if not leased and not work_turns:
        return None
    return Work(tasks=tuple(leased), workflow_tasks=tuple(work_turns))


def _deadline(task: Task) -> int:
    """Return the instant by which the running attempt must have ended, 0 for none."""
    ends = [end for end in (task.status.attempt_deadline, task.close_by) if end]
    return min(ends, default=0)
