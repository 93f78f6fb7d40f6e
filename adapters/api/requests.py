"""The requests of every surface, by subject: check the arguments, then define what to run and how to respond. Nothing
is run here."""

from holdlog.adapters.api.changes.requests import ChangeRequests
from holdlog.adapters.api.changes.reverts import RevertRequests
from holdlog.adapters.api.claims.requests import ClaimRequests
from holdlog.adapters.api.events.requests import EventRequests
from holdlog.adapters.api.past.requests import PastRequests
from holdlog.adapters.api.questions.reports import ReportRequests
from holdlog.adapters.api.questions.requests import QuestionRequests
from holdlog.adapters.api.questions.timelines import TimelineRequests
from holdlog.adapters.api.redaction.requests import RedactionRequests
from holdlog.adapters.api.refusals import response_to
from holdlog.adapters.api.retention.requests import RetentionRequests
from holdlog.adapters.api.rules import RequestRules
from holdlog.adapters.api.threads.data_requests import ThreadDataRequests
from holdlog.adapters.api.threads.requests import ThreadRequests
from holdlog.adapters.api.values.requests import ValueRequests
from holdlog.adapters.api.values.responses import Denied, Failed, Result, Unavailable
from holdlog.adapters.api.values.transactions import TransactionRequests
from holdlog.adapters.auth.grants import Grants
from holdlog.domain.refusals import HoldlogError, InapplicableError


class Requests:
    """The requests of a caller. Every method raises InvalidError for an invalid argument, then DeniedError for what the
    caller may not do."""

    def __init__(self, rules: RequestRules) -> None:
        self.rules = rules
        self.values = ValueRequests(rules)
        self.transactions = TransactionRequests(rules)
        self.claims = ClaimRequests(rules)
        self.threads = ThreadRequests(rules)
        self.thread_data = ThreadDataRequests(rules)
        self.events = EventRequests(rules)
        self.changes = ChangeRequests(rules)
        self.reverts = RevertRequests(rules)
        self.past = PastRequests(rules)
        self.questions = QuestionRequests(rules)
        self.reports = ReportRequests(rules)
        self.timelines = TimelineRequests(rules)
        self.redactions = RedactionRequests(rules)
        self.retention = RetentionRequests(rules)

    def within(self, grants: Grants) -> "Requests":
        """Return the same requests, restricted to these grants."""
        return Requests(self.rules.within(grants))

    def refused(self, refusal: HoldlogError) -> Result:
        """Convert a refusal to a response for this caller."""
        response = self.rules.shown(response_to(refusal, self.rules.moment()))
        if isinstance(response, Unavailable | Failed):
            return response.model_copy(update={"message": self.rules.describe(refusal)})
        return response

    def expected(self, refusal: HoldlogError) -> Result:
        """Like `refused`, but raises what is not an expected outcome of a call: bad arguments, denials, a store that
        cannot be used."""
        response = self.refused(refusal)
        if isinstance(response, Denied | Failed) and not isinstance(refusal, InapplicableError):
            raise refusal
        return response
