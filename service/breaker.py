"""Whose failure was it, the backend's or the job's? And: may the backend be asked now? Pure; one value a backend.

                     a failing check, or FAILURES failures in the window with no success between
          closed ────────────────────────────────────────────────────────────────────────────────▶ open
            ▲                                                                                     │ ▲
            │ the probe succeeded,                                    open_s over, a good check   │ │ the probe failed,
            │ or nobody wanted one for open_s and a check was good                                ▼ │ or a check
            └──────────────────────────────────────────────────────────────────────────────── half_open

While closed, after a failure that is neither missing nor corrupt, the caller runs the backend's `check`:

    check        throttled   failures counted      the failure is     charged   and the breaker
    fails        -           -                     the backend's      nobody    opens at once
    good or not  yes         fewer than FAILURES   the backend's      nobody    counts it
      asked                  FAILURES              the backend's      nobody    opens
    good         no          fewer than FAILURES   the job's          the job   remembers it, in case others follow
    good         no          FAILURES              the backend's      nobody    opens

Counted are different jobs, and every throttled answer; one job alone, however often it fails, stays one. So one bad
object never opens the breaker, and is charged until it is dead. In a whole outage `check` fails too: nobody is charged,
from the first failure on. In an outage that spares the check, up to FAILURES - 1 jobs are charged once, before it can
be known, and one a probe, each time another one: the price of noticing that some objects are bad, not the backend.

A late failure, of a call that began before the breaker opened, charges nobody while it is open.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

State = Literal["closed", "half_open", "open"]


@dataclass(frozen=True, slots=True)
class Policy:
    """`failures` within `window_s` open the breaker for `open_s`."""

    failures: int = 5
    window_s: float = 30.0
    open_s: float = 30.0  #: also how long an unanswered probe blocks the next one, in case its caller is gone


@dataclass(frozen=True, slots=True)
class Permit:
    """What may be asked of the backend.

    all      anything
    probe    one job; another than `avoid` (a reference's text), if there is one
    nothing  for `wait_s` from now at least
    """

    kind: Literal["all", "probe", "nothing"]
    wait_s: float = 0.0
    avoid: str | None = None


ALL: Final = Permit("all")


@dataclass(frozen=True, slots=True)
class _Failure:
    job: str
    at_s: float
    throttled: bool


@dataclass(frozen=True, slots=True)
class Breaker:
    """One backend's standing. Every transition gives a new value; times are monotonic seconds; jobs are any names.

    Bounded: remembers fewer than `policy.failures` failures and two jobs.
    """

    policy: Policy = Policy()
    state: State = "closed"
    since_s: float = 0.0  #: when this state began, unless closed; open, it is over at since_s + open_s
    suspect: str | None = None  #: the last job that failed; the next probe is another, if there is one
    probe: str | None = None  #: the job that is being tried, half-open only
    probe_since_s: float = 0.0
    recent: tuple[_Failure, ...] = ()

    def permit(self, now_s: float) -> Permit:
        """What may be asked of the backend now. Asking changes nothing: who then calls must still `begin`."""
        if self.state == "closed":
            return ALL
        if self.state == "open":
            return Permit("nothing", max(0.0, self.since_s + self.policy.open_s - now_s))
        if self._probed(now_s):
            return Permit("nothing", self.probe_since_s + self.policy.open_s - now_s)
        return Permit("probe", avoid=self.suspect)

    def begin(self, job: str, now_s: float) -> "Breaker | None":
        """`job` wants to ask the backend. None: it must not; otherwise it may, and is the probe if half-open."""
        if self.state == "closed":
            return self
        if self.state == "open" or self._probed(now_s):
            return None
        return replace(self, probe=job, probe_since_s=now_s)

    def succeeded(self) -> "Breaker":
        """A payload was read or written. Forgets all failures; ends a half-open state, whoever succeeded.

        An open breaker stays open: this call began before the outage was noticed.
        """
        if self.state == "open" or (self.state == "closed" and not self.recent):
            return self
        return Breaker(self.policy)

    def failed(
        self, job: str, now_s: float, *, check_ok: bool = True, throttled: bool = False
    ) -> tuple["Breaker", bool]:
        """A call for `job` failed, neither missing nor corrupt. Returns what is next, and whether `job` is charged.

        `check_ok`: the answer of `check` just after; True also if nobody asked, which `throttled` makes needless.
        """
        if not check_ok:
            return replace(self.tripped(now_s), suspect=job), False
        if self.state == "closed":
            return self._counted(job, now_s, throttled)
        suspected = replace(self, suspect=job)
        if self.state == "half_open" and self.probe == job:
            return suspected._opened(now_s), not throttled
        return suspected, False

    def tripped(self, now_s: float) -> "Breaker":
        """A check failed, or the start did. Opens at once; open already, the time of the next check stays."""
        if self.state == "open" and not self.check_due(now_s):
            return self
        return self._opened(now_s)

    def check_due(self, now_s: float) -> bool:
        """Whether a good check leads on from here: open for open_s, or half-open and not made use of for open_s."""
        if self.state == "closed":
            return False
        busy_until_s = self.probe_since_s + (self.policy.open_s if self.probe else 0.0)
        return now_s >= max(self.since_s, busy_until_s) + self.policy.open_s

    def checked(self, now_s: float) -> "Breaker":
        """A check was good. If that was due: half-open, or closed if it was half-open and nobody made use of it."""
        if not self.check_due(now_s):
            return self
        if self.state == "half_open":
            return Breaker(self.policy)
        return Breaker(self.policy, "half_open", now_s, self.suspect)

    def unproven(self, job: str) -> "Breaker":
        """The call for `job` told nothing about the backend (missing, corrupt, given up): another may be the probe."""
        return replace(self, probe=None) if self.probe == job else self

    def _counted(self, job: str, now_s: float, throttled: bool) -> tuple["Breaker", bool]:
        recent = tuple(
            failure
            for failure in self.recent
            if now_s - failure.at_s <= self.policy.window_s and (failure.throttled or throttled or failure.job != job)
        )
        counted = replace(self, recent=(*recent, _Failure(job, now_s, throttled)), suspect=job)
        if len(counted.recent) >= self.policy.failures:
            return counted._opened(now_s), False
        return counted, not throttled

    def _opened(self, now_s: float) -> "Breaker":
        return Breaker(self.policy, "open", now_s, self.suspect)

    def _probed(self, now_s: float) -> bool:
        return self.probe is not None and now_s < self.probe_since_s + self.policy.open_s
