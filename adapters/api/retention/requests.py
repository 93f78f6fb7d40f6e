"""Requests about retention. For people: they need the grant `admin`."""

from holdlog.adapters.api.request import CommandRequest, Query
from holdlog.adapters.api.retention.responses import NamespaceRetention, RetentionList, RetentionResult
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.validation import checked
from holdlog.domain.commands import Outcome
from holdlog.domain.ports import Reader
from holdlog.domain.retention import ApplyRetention, ChangeRetention, RetentionApplied, RetentionChange


class RetentionRequests:
    """Builds requests about retention. Every method raises InvalidError, then DeniedError."""

    def __init__(self, rules: RequestRules) -> None:
        self._rules = rules

    def listed(self) -> Query[RetentionList]:
        """The retention of the namespaces that the caller administers."""

        def answer(reader: Reader) -> RetentionList:
            found = (it for it in reader.store_log().retention if self._rules.grants.allows("admin", it.namespace))
            return RetentionList(
                retention=[NamespaceRetention(namespace=it.namespace, seconds=it.seconds) for it in found]
            )

        return Query(answer)

    def change(self, namespace: str, seconds: int | None, by: str) -> CommandRequest[RetentionResult]:
        """Keep former values of a namespace for `seconds`; None: as long as the store."""
        command = checked(lambda: ChangeRetention(namespace=namespace, seconds=seconds, by=by), by="by")
        self._rules.require("admin", command.namespace)

        def answer(outcome: Outcome) -> RetentionResult:
            assert isinstance(outcome, RetentionChange)
            return RetentionResult(
                namespace=command.namespace,
                seconds=command.seconds,
                already=not outcome.changed,
                position=outcome.position,
            )

        return CommandRequest(command, answer)

    def apply(self) -> CommandRequest[RetentionApplied]:
        """Remove some of the former values that are due; the response says whether there are more."""
        self._rules.require("admin", "*")

        def answer(outcome: Outcome) -> RetentionApplied:
            assert isinstance(outcome, RetentionApplied)
            return outcome

        return CommandRequest(ApplyRetention(), answer)
