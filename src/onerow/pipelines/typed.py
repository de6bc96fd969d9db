"""Static types of pipelines: the payload's type, and decorators that check it against the handler's first parameter."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from onerow.core.sizes import Size
from onerow.pipelines.errors import ErrorMap
from onerow.pipelines.options import RunOptions

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # The default: `Pipeline` without a parameter, in an annotation or a call, is Pipeline[Any].
    Payload = TypeVarWithDefault("Payload", default=Any)
else:
    Payload = TypeVar("Payload")

Function = TypeVar("Function", bound=Callable[..., Any])
Rest = ParamSpec("Rest")
Result = TypeVar("Result")


class Untyped:
    """Only for type checkers: `Pipeline[Untyped]` accepts Pipeline[Any], but no pipeline with a payload type."""


class Signal(Generic[Result]):
    """A signal that a wait phase waits for, with the type of its payload, for `queue.signal`."""

    def __init__(self, name: str, payload_type: Any) -> None:
        self.name = name
        self.payload_type = payload_type


class HandlerContext(Protocol):
    """What identifies `ctx` as the first parameter of a handler without a payload."""

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this phase; different after a replay."""


Ctx = TypeVar("Ctx", bound=HandlerContext)


class AddFunction(Protocol[Payload]):
    """A decorator that adds a function as a phase: of any signature, or else with the payload's type first."""

    @overload
    def __call__(self: "AddFunction[Untyped]", function: Function, /) -> Function: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Payload, Rest], Result], /
    ) -> Callable[Concatenate[Payload, Rest], Result]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Ctx, Rest], Result], /
    ) -> Callable[Concatenate[Ctx, Rest], Result]: ...

    @overload
    def __call__(self, function: Callable[[], Result], /) -> Callable[[], Result]: ...


class PhaseDecorator(AddFunction[Payload], Protocol[Payload]):
    """`Pipeline.phase`: a decorator, with or without options."""

    @overload
    def __call__(self: "PhaseDecorator[Untyped]", function: Function, /) -> Function: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Payload, Rest], Result], /
    ) -> Callable[Concatenate[Payload, Rest], Result]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Ctx, Rest], Result], /
    ) -> Callable[Concatenate[Ctx, Rest], Result]: ...

    @overload
    def __call__(self, function: Callable[[], Result], /) -> Callable[[], Result]: ...

    @overload
    def __call__(
        self,
        function: None = None,
        /,
        *,
        name: str = "",
        isolate: Literal["process"] | None = None,
        memory_limit: Size | None = None,
        errors: ErrorMap | None = None,
        **options: Unpack[RunOptions],
    ) -> AddFunction[Payload]: ...
