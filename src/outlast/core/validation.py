"""What a request must look like before it may reach a shard: names, lengths, spans, sizes.

It is checked once, at the engine's door, so that the core and the stores need not doubt what they are given. What depends
on the state of things (is it open, was the key used) is decided by the core.
"""

import math
from typing import Final, assert_never, cast

import msgspec

from outlast.core import limits
from outlast.core.admin import (
    CreateNamespace,
    DeleteNamespace,
    DescribeWorkers,
    NamespaceSettings,
    UpdateNamespace,
)
from outlast.core.carriers import payloads_in, place_of
from outlast.core.errors import Invalid, TooLarge
from outlast.core.events import Headers
from outlast.core.inputs import (
    AnswerQueries,
    AwaitTask,
    AwaitWorkflow,
    Begin,
    CancelTask,
    CancelWorkflow,
    CompleteTasks,
    CompleteWorkflowTasks,
    DescribeTask,
    DescribeWorkflow,
    EnqueueTask,
    EnqueueTasks,
    Heartbeat,
    Poll,
    QueryWorkflow,
    Request,
    RetryTasks,
    ReturnTasks,
    SignalWorkflow,
    StartWorkflow,
    StartWorkflows,
    StopWorker,
    TerminateWorkflow,
)
from outlast.core.retry import RetryPolicy

NAMESPACE_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
DOTS: Final = frozenset({".", ".."})  # parts of an address that mean another place
SHORT: Final = limits.KEY_BYTES_MAX // 4  # characters that are not too many bytes in any script

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_GOOD_NAMES: Final[set[str]] = set()


def measure(request: Request) -> int:
    """Return how many bytes ``request`` takes on the wire, an upper bound for each payload in it.

    Raises Invalid for what cannot be written at all (text with a lone surrogate, a number over 64 bits), and for what
    could not be read again: a caller in this process may give any object for any field, and a row with a number where a
    text belongs would keep the shard from ever being loaded.
    """
    try:
        written = _ENCODER.encode(request)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError) as error:
        raise Invalid(
            "invalid_request",
            f"The request cannot be written: {error}.",
            remedy="Text must be valid Unicode without lone surrogates, whole numbers must fit into 64 bits.",
        ) from None
    try:
        _DECODER.decode(written)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        raise Invalid(
            "invalid_request",
            f"{_named(request, where)} cannot be taken: {what}.",
            remedy="Give a value of that type.",
        ) from None
    return len(written)


def _named(request: Request, where: str) -> str:
    """Return the field that is "$[3][1]" in the written form by its name: "retry.attempts_max"."""
    value: object = request
    name = ""
    for part in where.split("[")[1:]:
        step = part.partition("]")[0]
        if not step.isdigit():  # "...": some entry of a mapping
            break
        if isinstance(value, msgspec.Struct):
            field = value.__struct_fields__[int(step) - (value.__struct_config__.tag is not None)]
            name, value = f"{name}.{field}" if name else field, getattr(value, field)
        elif isinstance(value, tuple):
            name, value = f"{name}[{step}]", cast("tuple[object, ...]", value)[int(step)]
    return name or "The request"


def require_small_payloads(request: Request) -> None:
    """Refuse a payload over PAYLOAD_BYTES_MAX, naming where it stands."""
    for payload in payloads_in(request):
        if len(payload.data) > limits.PAYLOAD_BYTES_MAX:
            raise TooLarge(
                "payload_too_large",
                f"The payload at {place_of(request, payload)} has {len(payload.data):,} bytes; "
                f"{limits.PAYLOAD_BYTES_MAX:,} are allowed.",
                remedy="Keep large data in storage of your own and pass a reference to it.",
                place=place_of(request, payload),
            )


def validate(request: Request) -> None:
    """Raise Invalid or TooLarge, with fact and remedy, unless ``request`` has the shape it must have.

    The items of a batch are looked at by ``faults_of``, so that a bad one refuses only itself.
    """
    match request:
        case AwaitTask() | DescribeTask():  # first, as these come most often
            _key("task_id", request.task_id, needed=True)
        case AwaitWorkflow():
            _workflow_id(request.workflow_id)
        case StartWorkflow():
            _start(request)
        case EnqueueTask():
            _enqueue(request)
        case StartWorkflows() | EnqueueTasks():
            _count("items", len(request.items), 1, limits.BATCH_ITEMS_MAX)
        case SignalWorkflow():
            _workflow_id(request.workflow_id)
            check_name("name", request.name)
            _key("request_id", request.request_id, needed=True)
            check_headers(request.headers)
        case QueryWorkflow():
            _workflow_id(request.workflow_id)
            check_name("name", request.name)
            check_headers(request.headers)
            check_span("wait", request.wait, longest=limits.POLL_WAIT_MAX)
        case CancelWorkflow() | TerminateWorkflow():
            _workflow_id(request.workflow_id)
            _key("request_id", request.request_id, needed=True)
            _text("reason", request.reason)
        case DescribeWorkflow():
            _workflow_id(request.workflow_id)
            _key("start_request_id", request.start_request_id)
        case CancelTask():
            _key("task_id", request.task_id, needed=True)
            _text("reason", request.reason)
        case RetryTasks():
            _validate_retry(request)
        case CreateNamespace() | UpdateNamespace() | DeleteNamespace() | DescribeWorkers():
            _validate_admin(request)
        case _:
            _validate_of_worker(request)


def faults_of(items: tuple[StartWorkflow | EnqueueTask, ...]) -> dict[int, Invalid | TooLarge]:
    """Return what is wrong with the items of a batch, by position; empty when nothing is."""
    faults: dict[int, Invalid | TooLarge] = {}
    for n, item in enumerate(items):
        try:
            if isinstance(item, StartWorkflow):
                _start(item)
            else:
                _enqueue(item)
        except (Invalid, TooLarge) as fault:
            faults[n] = fault
    return faults


def _validate_of_worker(
    request: Poll
    | Begin
    | Heartbeat
    | CompleteTasks
    | ReturnTasks
    | CompleteWorkflowTasks
    | AnswerQueries
    | StopWorker,
) -> None:
    _key("worker", request.worker, needed=True)
    _said_of_itself(request)
    match request:
        case Poll():
            _poll(request)
        case Begin():
            _count("tokens", len(request.tokens), 0, limits.WORKER_ITEMS_MAX)
        case Heartbeat() | CompleteTasks() | AnswerQueries():
            _count("items", len(request.items), 0, limits.WORKER_ITEMS_MAX)
        case ReturnTasks():
            _count("tokens", len(request.tokens), 0, limits.WORKER_ITEMS_MAX)
            _count("workflow_tokens", len(request.workflow_tokens), 0, limits.WORKER_ITEMS_MAX)
        case CompleteWorkflowTasks():
            _count("done", len(request.done), 0, limits.WORKER_ITEMS_MAX)
            _count("not_done", len(request.not_done), 0, limits.WORKER_ITEMS_MAX)
            _one_run_id_each(request)
        case StopWorker():
            pass
        case _:
            assert_never(request)


def _said_of_itself(said: object) -> None:
    """Refuse names that a worker gives itself which are too long: they are kept with each of its leases."""
    for name in ("identity", "build", "sdk"):
        _key(name, getattr(said, name, ""))


def _validate_retry(request: RetryTasks) -> None:
    _count("task_ids", len(request.task_ids), 1, limits.BATCH_ITEMS_MAX)
    for task_id in request.task_ids:
        _key("task_ids", task_id, needed=True)
    _key("request_id", request.request_id, needed=True)
    _text("reason", request.reason)


def _validate_admin(request: CreateNamespace | UpdateNamespace | DeleteNamespace | DescribeWorkers) -> None:
    if isinstance(request, DescribeWorkers):
        if request.queue:
            check_name("queue", request.queue)
        return
    _key("request_id", request.request_id, needed=True)
    match request:
        case CreateNamespace():
            _namespace_name(request.name)
            _namespace_settings(request.settings)
        case UpdateNamespace():
            _namespace_settings(request.settings)
        case DeleteNamespace():
            if request.confirm != request.name:
                raise Invalid(
                    "invalid_request",
                    f'The namespace "{request.name}" is to be deleted, and confirm says "{request.confirm}".',
                    remedy="Repeat the name of the namespace in confirm.",
                )
        case _:
            assert_never(request)


def _namespace_name(name: str) -> None:
    ends = name[:1] + name[-1:]
    good = name and set(name) <= NAMESPACE_LETTERS and ends.strip("-_.") == ends
    if not good or len(name) > limits.NAMESPACE_NAME_MAX:
        raise Invalid(
            "invalid_request",
            f"{name!r} is no name for a namespace.",
            remedy=f"Give up to {limits.NAMESPACE_NAME_MAX} small letters and digits; - _ . may stand between them.",
        )


def _namespace_settings(settings: NamespaceSettings) -> None:
    _bounded("settings.description", settings.description, limits.DESCRIPTION_BYTES_MAX)
    check_span("settings.retention", settings.retention)
    _count("settings.payload_bytes_max", settings.payload_bytes_max, 0, limits.PAYLOAD_BYTES_MAX)
    _count("settings.starts_burst", settings.starts_burst, 0, limits.STARTS_MAX)
    if not math.isfinite(settings.starts_per_second) or not 0 <= settings.starts_per_second <= limits.STARTS_MAX:
        raise Invalid(
            "invalid_request",
            f"settings.starts_per_second is {settings.starts_per_second}.",
            remedy=f"Give a number from 0, for no limit, to {limits.STARTS_MAX:,}.",
        )


def _start(request: StartWorkflow) -> None:
    check_name("type", request.type)
    check_name("queue", request.queue)
    _new_id("run_id", request.run_id)
    if not 0 < len(request.request_id) <= SHORT:
        _key("request_id", request.request_id, needed=True)
    if request.workflow_id:
        _workflow_id(request.workflow_id)
        _speakable("workflow_id", request.workflow_id)
    if request.run_timeout or request.delay:
        check_span("run_timeout", request.run_timeout)
        check_span("delay", request.delay)
    if request.task_timeout:
        check_span("task_timeout", request.task_timeout, longest=limits.WORKFLOW_TASK_TIMEOUT_MAX)
    if request.headers or request.tags:
        check_headers(request.headers)
        _tags(request.tags)
    _payloads_of_item(request)


def _enqueue(request: EnqueueTask) -> None:
    check_name("type", request.type)
    check_name("queue", request.queue)
    _new_id("task_id", request.task_id)
    if len(request.key) > SHORT:
        _key("key", request.key)
    if request.delay or request.schedule_to_start or request.schedule_to_close or request.heartbeat:
        check_span("delay", request.delay)
        check_span("schedule_to_start", request.schedule_to_start)
        check_span("schedule_to_close", request.schedule_to_close)
        check_span("heartbeat", request.heartbeat)
    if not 0 <= request.start_to_close <= limits.SPAN_MAX:
        check_span("start_to_close", request.start_to_close)
    check_priority(request.priority)
    if request.retry is not None:
        check_retry(request.retry)
    if request.fairness_key:
        _key("fairness_key", request.fairness_key)
    if request.headers or request.tags:
        check_headers(request.headers)
        _tags(request.tags)
    _payloads_of_item(request)


def _payloads_of_item(request: StartWorkflow | EnqueueTask) -> None:
    size = 0
    for payload in request.input:
        size += len(payload.data) + 24
    if size <= limits.PAYLOAD_BYTES_MAX:
        return
    require_small_payloads(request)
    if size > limits.REQUEST_BYTES_MAX:
        raise TooLarge(
            "payload_too_large",
            f"The input has {size:,} bytes; {limits.REQUEST_BYTES_MAX:,} are allowed.",
            remedy="Keep large data in storage of your own and pass a reference to it.",
        )


def _poll(request: Poll) -> None:
    _key("poll_id", request.poll_id, needed=True)
    _count("queues", len(request.queues), 1, limits.POLL_NAMES_MAX)
    for queue in request.queues:
        check_name("queues", queue)
    for name in ("task_types", "workflow_types"):
        types: tuple[str, ...] = getattr(request, name)
        _count(name, len(types), 0, limits.POLL_NAMES_MAX)
        for type_ in types:
            check_name(name, type_)
    pairs = len(request.queues) * (len(request.task_types) + len(request.workflow_types))
    _count("queues times types", pairs, 0, limits.POLL_PAIRS_MAX)
    _count("slots", request.slots, 0, limits.WORKER_ITEMS_MAX)
    _count("workflow_slots", request.workflow_slots, 0, limits.WORKER_ITEMS_MAX)
    check_span("wait", request.wait, longest=limits.POLL_WAIT_MAX)


def _one_run_id_each(request: CompleteWorkflowTasks) -> None:
    for done in request.done:
        _count("commands", len(done.commands), 0, limits.COMMANDS_MAX)
    for turn in (*request.done, *request.not_done):
        _said_of_itself(turn)
    if request.new_run_ids and len(request.new_run_ids) != len(request.done):
        raise Invalid(
            "invalid_request",
            f"There are {len(request.done)} turns done and {len(request.new_run_ids)} new run ids.",
            remedy="Give one fresh run id for each turn in done.",
        )
    for run_id in request.new_run_ids:
        if run_id:
            _new_id("new_run_ids", run_id)


def check_retry(policy: RetryPolicy) -> None:
    """Refuse a policy with a span, a number of attempts or a factor that none may have."""
    spans_fit = 0 <= policy.first <= limits.SPAN_MAX and 0 <= policy.longest <= limits.SPAN_MAX
    if spans_fit and 0 <= policy.attempts_max <= limits.ATTEMPTS_MAX and 1 <= policy.factor <= limits.RETRY_FACTOR_MAX:
        return
    _count("retry.attempts_max", policy.attempts_max, 0, limits.ATTEMPTS_MAX)
    check_span("retry.first", policy.first)
    check_span("retry.longest", policy.longest)
    if not math.isfinite(policy.factor) or not 1 <= policy.factor <= limits.RETRY_FACTOR_MAX:  # 0.5 would shrink pauses
        raise Invalid("invalid_request", f"retry.factor is {policy.factor}.", remedy="Give a number from 1 to 1,000.")


def check_priority(value: int) -> None:
    """Refuse what is none of the five priorities."""
    if not 1 <= value <= 5:  # noqa: PLR2004 - the five priorities of the house
        raise Invalid("invalid_request", f"priority is {value}.", remedy="Give one of 1 (first) to 5.")


def check_name(field: str, value: str) -> None:
    """Names are shown to people and put into indexes: short, not empty, without control characters."""
    if value in _GOOD_NAMES:
        return
    if value and len(value) <= limits.NAME_BYTES_MAX and value.isascii() and value.isprintable():
        if len(_GOOD_NAMES) < limits.GOOD_NAMES_MAX:
            _GOOD_NAMES.add(value)
        return
    if not value:
        raise Invalid("invalid_request", f"{field} is empty.", remedy=f"Give {field} a name.")
    size = _size(field, value)
    if size > limits.NAME_BYTES_MAX:
        raise TooLarge(
            "limit_exceeded",
            f"{field} has {size} bytes; {limits.NAME_BYTES_MAX} are allowed.",
            remedy="Give a shorter name.",
        )
    if not value.isprintable():
        raise Invalid(
            "invalid_request", f"{field} is {value!r}, with a control character.", remedy="Give a printable name."
        )


def _workflow_id(value: str) -> None:
    if not value:
        raise Invalid("invalid_request", "workflow_id is empty.", remedy="Name the workflow.")
    _bounded("workflow_id", value, limits.WORKFLOW_ID_BYTES_MAX)


def _new_id(field: str, value: str) -> None:
    """An id that a caller makes. With a colon it would look like an activity's, which is made of its run's id."""
    if not 0 < len(value) <= SHORT:
        _key(field, value, needed=True)
    if ":" in value:
        raise Invalid(
            "invalid_request",
            f'{field} is {value!r}; ids with a ":" are those of activities.',
            remedy="Give an id without a colon.",
        )
    _speakable(field, value)


def _speakable(field: str, value: str) -> None:
    """Refuse an id that reads as another one, or as two, where ids stand one a line: in a list, a pipe, a log; or an address."""
    if value in DOTS:
        raise Invalid(
            "invalid_request",
            f'{field} is "{value}", which clients take out of an address.',
            remedy="Give an id that is not just dots.",
        )
    if value.isprintable() and value[0] != " " != value[-1]:
        return
    raise Invalid(
        "invalid_request",
        f"{field} is {value!r}, with a control character or a space at an end.",
        remedy="Give an id of printable characters, without spaces around it.",
    )


def _key(field: str, value: str, *, needed: bool = False) -> None:
    if not value:
        if needed:
            raise Invalid("invalid_request", f"{field} is empty.", remedy=f"Give the request a {field}.")
        return
    _bounded(field, value, limits.KEY_BYTES_MAX)


def _text(field: str, value: str) -> None:
    _bounded(field, value, limits.FAILURE_TEXT_BYTES_MAX)


def _bounded(field: str, value: str, most: int) -> None:
    if len(value) * 4 <= most:
        return
    size = _size(field, value)
    if size > most:
        raise TooLarge("limit_exceeded", f"{field} has {size} bytes; {most} are allowed.", remedy="Give a shorter one.")


def _size(field: str, value: str) -> int:
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise Invalid(
            "invalid_request", f"{field} has a lone surrogate.", remedy="Give text that is valid Unicode."
        ) from None


def check_span(field: str, value: int, *, longest: int = limits.SPAN_MAX) -> None:
    """Refuse a span below 0 or above ``longest``."""
    if not 0 <= value <= longest:
        raise Invalid(
            "invalid_request",
            f"{field} is {value / 1e9:,.0f} s.",
            remedy=f"Give a span from 0 to {longest / 1e9:,.0f} s.",
        )


def _count(field: str, value: int, least: int, most: int) -> None:
    if value < least:
        raise Invalid("invalid_request", f"{field} has {value}.", remedy=f"Give at least {least}.")
    if value > most:
        raise TooLarge("limit_exceeded", f"{field} has {value}; {most} are allowed.", remedy="Split the request.")


def check_headers(headers: Headers | None) -> None:
    """Refuse headers that are too large."""
    if not headers:
        return
    size = sum(len(name) + len(payload.data) for name, payload in headers.items())
    if size > limits.HEADERS_BYTES_MAX:
        raise TooLarge(
            "limit_exceeded",
            f"The headers have {size} bytes; {limits.HEADERS_BYTES_MAX} are allowed.",
            remedy="Put data into the input.",
        )


def _tags(tags: dict[str, str] | None) -> None:
    if not tags:
        return
    _count("tags", len(tags), 0, limits.TAGS_MAX)
    for name, value in tags.items():
        check_name("tags", name)
        _bounded(f"tags.{name}", value, limits.KEY_BYTES_MAX)
