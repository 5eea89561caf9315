"""The planner: ``next_step(problem, history)`` says what to launch now, or what the answer is.

It keeps no state: everything follows from the history, so a resumed, corrected or replayed bisect
plans exactly as an uninterrupted one. One planner serves certain and flaky crashes, one cause and
several, one host and many.
"""

from __future__ import annotations

from collections.abc import Iterable

from fleetctl.bisect import isolate
from fleetctl.bisect.belief import Belief, believe, chance_of_silence, doubts
from fleetctl.bisect.choose import Part, best, bits, divide
from fleetctl.bisect.masks import HOPELESS, Masks
from fleetctl.bisect.model import (
    Cause,
    Evidence,
    History,
    Observation,
    Outcome,
    Problem,
    Purpose,
    Status,
    Trial,
    Verdict,
    hunted_phase,
    is_earlier,
    members,
    sort_out,
    tells,
)

TAKE_UP = 0.90  # posterior at which a set is taken up, to be confirmed
SURE = 0.997  # posterior at which a set is taken as the cause
DOUBT = 0.30  # odds, summed over its atoms, that the cause is smaller than named: to be taken up
FINAL_DOUBT = 0.015  # … and to be announced
# For three atoms and more: their prior is low, and each is proved by itself.
WIDE_SURE, WIDE_DOUBT = 0.985, 0.05
FLAKY_SURE, FLAKY_DOUBT = 0.975, 0.05  # the same, once the crash is known to be flaky
TRY_OUTRIGHT = 0.40  # posterior at which launching the set itself counts as its confirmation
SETTLES = 0.50  # posterior, should the set crash, at which a search trial is run as proof of it
OUTRIGHT_BONUS = 1.25  # that launch pays twice: it searches and it confirms
ANOTHER_CAUSE = 0.10  # prior chance of a second cause, once one is found
REST_DOUBT = 0.01  # what may remain of it
NOTHING_TO_LEARN = 0.004  # bits
LONG_SILENCE = 12  # passes in a row after which the crash has to show that it still comes
HIDDEN = 3  # launches of a proof that another failure hides before it is left open
DETOURS = 3  # launches of "bad without the cause" with more atoms off, where that is masked


def next_step(problem: Problem, history: History) -> Trial | Verdict:
    """Return the next trial, or the verdict."""
    step = next_round(problem, history, 1)
    return step if isinstance(step, Verdict) else step[0]


def next_round(problem: Problem, history: History, hosts: int) -> tuple[Trial, ...] | Verdict:
    """Return up to ``hosts`` trials to run at the same time, or the verdict.

    A trial may come back with fewer companions than there are hosts: then nothing else was worth
    a launch. Sets may repeat when the crash is not certain.
    """
    if problem.options.strategy == "one-at-a-time":
        return isolate.next_round(problem, history, hosts)
    step = _Step(problem, history, hosts)
    trials = step.plan()
    if isinstance(trials, Verdict):
        return trials
    if silent := isolate.gone_quiet(history):
        return step.give_up(
            f"what crashed before served {silent} times in a row: the crash does not come any more",
            Status.INCONCLUSIVE,
        )
    limit, spent = problem.options.max_trials, isolate.spent(history)
    if limit is not None and spent >= limit:
        return step.give_up(f"the budget of {limit} trials is spent")
    if isolate.infra_run(history) >= problem.options.infra_in_a_row:
        return Verdict(Status.INCONCLUSIVE, reason=isolate.HOST_FAILS)
    room = hosts if limit is None else min(hosts, limit - spent)
    return tuple(isolate.described(t, history) for t in trials[:room])


class _Step:
    """One look at the history."""

    def __init__(self, problem: Problem, history: History, hosts: int) -> None:
        self.problem = problem
        self.history = history
        self.hosts = hosts
        self.seen: Evidence = sort_out(history)
        self.masks = Masks(problem.size, self.seen)
        self.found: list[Cause] = []

    def plan(self) -> list[Trial] | Verdict:
        """Return what to do: calibrate, search, confirm, or stop."""
        early = isolate.calibrate(self.problem, self.seen)
        if isinstance(early, Verdict):
            return early
        if early:
            return self._with_speculation(early)
        while crashes := self.unexplained():
            step = self._pursue(crashes)
            if isinstance(step, Cause):
                self.found.append(step)
            else:
                return step
        return self._rest()

    def unexplained(self) -> list[int]:
        """Return the crashes that no cause found so far explains."""
        return [c for c in self.seen.crashes if not any(not f.flags & ~c for f in self.found)]

    def _with_speculation(self, trials: list[Trial]) -> list[Trial]:
        """Fill a round of calibration with the first search trial: most bad ends do crash."""
        if self.hosts > len(trials) and self.problem.size > 1:
            belief = believe(self.problem.weights, self.problem.full, self.seen.passes, [])
            trials += self._informative([], belief, self.hosts - len(trials))
        return trials

    # one cause

    def _pursue(self, crashes: list[int]) -> list[Trial] | Cause:
        """Return the cause behind the smallest of these crashes, or the trials that lead to it."""
        bad = min(crashes, key=lambda c: (c.bit_count(), c))
        if isolate.since_crash(self.history) >= LONG_SILENCE and bad not in self.seen.masked:
            return [Trial(bad, Purpose.SEARCH)]
        belief = believe(self.problem.weights, bad, self.seen.passes, crashes)
        mask, chance = belief.best()
        if mask == bad and chance >= TAKE_UP and self._minimal(bad):
            return self._settled_or_doubted(bad, chance, crashes)
        choice = best([Part(1.0, belief)], self.masks.visible, (mask,))
        outright = bits(belief, mask) * self.masks.visible(mask)
        if mask != bad and chance >= TRY_OUTRIGHT and outright * OUTRIGHT_BONUS >= choice.bits > 0:
            return self._fill([Trial(mask, Purpose.CONFIRM)], belief)
        if choice.bits >= NOTHING_TO_LEARN:
            proves = choice.on == mask or belief.settles(choice.on) >= SETTLES
            purpose = Purpose.OUTRIGHT if proves else Purpose.SEARCH
            return self._fill([Trial(choice.on, purpose)], belief)
        smaller = [bad & ~(1 << a) for a in members(bad)]
        smaller = [s for s in (mask, *smaller) if s != bad and not self._passed(s)]
        visible = max(smaller, key=self.masks.visible, default=bad)
        if smaller and self.masks.visible(visible) >= HOPELESS:
            return self._fill([Trial(visible, Purpose.SEARCH)], belief)
        return self._settled(self._masked_cause(belief))

    def _settled_or_doubted(
        self, bad: int, chance: float, crashes: list[int]
    ) -> list[Trial] | Cause:
        """Return the cause, or a launch without the atom that it may not need after all."""
        odds = doubts(bad, self.problem.size, self.seen.passes, crashes)
        order = sorted((a for a in odds if odds[a] > DOUBT / 8), key=lambda a: -odds[a])
        tests = [on for a in order if (on := self._less(bad, a)) is not None]
        if max(odds.values()) <= DOUBT or not tests:
            return self._settled(Cause(bad, probability=chance))
        legs = [self.problem.full & ~(1 << a) for a in order] if not self.found else []
        told = {*self.seen.passes, *self.seen.crashes, *self.seen.masked}
        fresh = [on for on in legs if on not in told and self.masks.visible(on) >= 0.5]
        # What proves the cause in the end shows the same now.
        trials = [Trial(on, Purpose.CONFIRM) for on in fresh]
        return (trials or [Trial(on, Purpose.SEARCH) for on in tests])[: self.hosts]

    def _less(self, mask: int, atom: int) -> int | None:
        """Return a set that shows whether the crash needs an atom: one that nothing hides, if there is one.

        That is the cause without it, else the bad end without it, else what passed without it before.
        """
        less = mask & ~(1 << atom)
        before = sorted((p for p in self.seen.passes if not less & ~p), key=int.bit_count)
        for on in (less, self.problem.full & ~(1 << atom), *before):
            if on and on not in self.seen.masked:
                return on
        return None

    def _minimal(self, mask: int) -> bool:
        """Return whether the set was seen to pass without each of its atoms."""
        return all(self._passed(mask & ~(1 << a)) for a in members(mask))

    def _passed(self, mask: int) -> bool:
        return any(not mask & ~p for p in self.seen.passes)

    def _masked_cause(self, belief: Belief) -> Cause:
        """Return what can be said where every launch that would tell more is masked."""
        marginals = belief.marginals()
        guilty = sum(
            1 << a
            for a in members(belief.bad)
            if marginals[a] >= SURE and self._passed(belief.bad & ~(1 << a))
        )
        open_ = belief.bad & ~guilty
        return Cause(guilty, open_, masked_by=self._mask_of(belief.bad, open_))

    def _mask_of(self, bad: int, atoms: int) -> str | None:
        """Return the signature that hides these atoms: from the launches closest to ``bad``."""
        hidden = [o for o in self.history if o.outcome is Outcome.OTHER and not atoms & ~bad]
        near = sorted(hidden, key=lambda o: ((o.on ^ bad) & bad).bit_count())
        return next((o.signature for o in near if atoms & ~o.on), None)

    def _settled(self, cause: Cause) -> list[Trial] | Cause:
        """Return the cause once "good with it" was launched to confirm it, else that launch."""
        on = cause.flags | cause.undetermined
        if self._confirmed(on, Outcome.SAME) or self._hidden(on):
            return cause
        trials = [Trial(on, Purpose.CONFIRM)]
        if self.hosts > 1:
            trials += self._without(cause.flags)[: self.hosts - 1]
        return trials

    def _confirmed(self, on: int, outcome: Outcome) -> bool:
        """Return whether a launch of ``on`` proved that outcome: a search trial that served does so too."""
        proof = {Purpose.CONFIRM, Purpose.OUTRIGHT, Purpose.CALIBRATE}
        if outcome is Outcome.PASS:
            proof.add(Purpose.SEARCH)
        hunted = hunted_phase(self.history)
        return any(
            o.on == on and o.purpose in proof and o.full and tells(o, hunted) is outcome
            for o in self.history
        )

    def _hidden(self, on: int) -> bool:
        """Return whether another failure came so often where ``on`` was launched that proof is given up."""
        return sum(1 for m in self.seen.masked if m == on) >= HIDDEN

    # rounds

    def _fill(self, trials: list[Trial], belief: Belief) -> list[Trial]:
        """Return the round: these trials, and more for the other hosts."""
        if self.hosts == len(trials):
            return trials
        confirm = [t for t in trials if t.purpose is Purpose.CONFIRM]
        if confirm:
            trials += self._without(confirm[0].on)[: self.hosts - len(trials)]
        return trials + self._informative(
            [t.on for t in trials], belief, self.hosts - len(trials)
        )  # fmt: skip

    def _informative(self, before: list[int], belief: Belief, count: int) -> list[Trial]:
        """Return further trials, each chosen for what it adds to those before it."""
        parts = [Part(1.0, belief)]
        for on in before:
            parts = divide(parts, on)
        out: list[Trial] = []
        while len(out) < count:
            choice = best(parts, self.masks.visible)
            if choice.bits < 0.05:
                break
            out.append(Trial(choice.on, Purpose.SEARCH))
            parts = divide(parts, choice.on)
        return out

    # everything else

    def _without(self, flags: int) -> list[Trial]:
        """Return the launch of the bad end without the cause, if it is not settled already."""
        firsts = sum_of(c.flags & -c.flags for c in self.found)
        legs = [self.problem.full & ~firsts & ~(1 << a) for a in members(flags)]
        return [
            Trial(on, Purpose.CONFIRM)
            for on in legs
            if on and self.masks.visible(on) >= HOPELESS and not self._confirmed(on, Outcome.PASS)
        ]

    # everything else

    def _rest(self) -> list[Trial] | Verdict:
        """Return the launches that show the causes from the other side, then the verdict.

        The bad end with one atom of every cause taken away must serve, for each of their atoms: that
        says at once that the atom is needed, and that no other cause is left.
        """
        legs = self._legs()
        missing = [on for on in legs if not self._confirmed(on, Outcome.PASS)]
        open_ = [on for on in missing if on not in self.seen.masked]
        if open_:
            return [Trial(on, Purpose.CONFIRM) for on in open_[: self.hosts]]
        doubtful = self._doubtful()
        if doubtful:
            return doubtful[: self.hosts]
        if missing:
            return self._detour(missing[0])
        return self._verdict(self.problem.full & ~sum_of(c.flags for c in self.found), shown=True)

    def _legs(self) -> list[int]:
        """Return the bad end without one atom of every cause, for each atom of the causes."""
        if not self.found:
            return []
        firsts = [c.flags & -c.flags for c in self.found]
        legs: list[int] = []
        for number, cause in enumerate(self.found):
            others = sum_of(f for i, f in enumerate(firsts) if i != number)
            legs += [self.problem.full & ~others & ~(1 << a) for a in members(cause.flags)]
        return [on for on in dict.fromkeys(legs) if on]

    def _doubtful(self) -> list[Trial]:
        """Return the launches that are wanted once more, because the crash may just stay away."""
        out: list[Trial] = []
        for cause in self.found:
            odds = doubts(cause.flags, self.problem.size, self.seen.passes, self.seen.crashes)
            flaky = self._passed(cause.flags)
            limit, sure = (FLAKY_DOUBT, FLAKY_SURE) if flaky else (FINAL_DOUBT, SURE)
            if cause.flags.bit_count() > 2 and not flaky:
                limit, sure = WIDE_DOUBT, min(sure, WIDE_SURE)
            if not odds or (max(odds.values()) <= limit and cause.probability >= sure):
                continue
            worst = max(odds, key=odds.__getitem__)
            leg = self.problem.full & ~(1 << worst)
            if flaky and len(self.found) == 1 and leg not in self.seen.masked:
                out.append(Trial(leg, Purpose.CONFIRM))
            elif cause.flags & ~(1 << worst):
                on = self._less(cause.flags | cause.undetermined, worst)
                out += [Trial(on, Purpose.SEARCH)] if on is not None else []
        flags = sum_of(c.flags for c in self.found)
        shown = sum(1 for p in self.seen.passes if not self.problem.full & ~flags & ~p)
        if not out and shown and shown < self._silences():
            legs = [on for on in self._legs() if on not in self.seen.masked]
            out = [Trial(on, Purpose.CONFIRM) for on in legs]
        return list(dict.fromkeys(out))

    def _silences(self) -> int:
        """Return how many passes of the rest are needed before another cause is out of question."""
        crashes = len(self.seen.crashes)
        silent = sum(1 for p in self.seen.passes for c in self.found if not c.flags & ~p)
        count = 1
        while count < 8 and ANOTHER_CAUSE * chance_of_silence(crashes, silent, count) > REST_DOUBT:
            count += 1
        return count

    def _detour(self, rest: int) -> list[Trial] | Verdict:
        """Look at the rest with a few more atoms off, where something else hides it."""
        tried = [m for m in self.seen.masked if not m & ~rest and m != rest]
        on = rest
        while on and self.masks.visible(on) < 0.5:
            on = max((on & ~(1 << a) for a in members(on)), key=self.masks.visible)
        passes = [p & rest for p in self.seen.passes if (p & rest).bit_count() >= on.bit_count()]
        widest = max(passes, key=int.bit_count, default=0)
        if widest or on == 0 or len(tried) >= DETOURS:
            return self._verdict(widest, shown=False)
        return [Trial(on, Purpose.CONFIRM)]

    def _verdict(self, clean: int, *, shown: bool) -> Verdict:
        """Return the answer; ``clean`` is the largest set seen to serve without the causes."""
        flags = sum_of(c.flags for c in self.found)
        open_ = sum_of(c.undetermined for c in self.found)
        causes = tuple(
            Cause(
                c.flags, c.undetermined, c.masked_by, shown and bool(c.flags) and self._crashes(c),
                self.problem.full & ~flags & ~clean, c.probability,
            )
            for c in self.found
        )  # fmt: skip
        if not flags:
            return Verdict(Status.INCONCLUSIVE, causes, reason="every telling launch was masked")
        innocent = (self._cleared() | clean) & ~flags & ~open_
        return Verdict(Status.FOUND, causes, innocent)

    def _crashes(self, cause: Cause) -> bool:
        return self._confirmed(cause.flags | cause.undetermined, Outcome.SAME)

    def _cleared(self) -> int:
        """Return the atoms seen in a pass."""
        return sum_of(self.seen.passes)

    def give_up(self, reason: str, status: Status = Status.BUDGET) -> Verdict:
        """Return what is believed after ``plan``, for a search that ends early."""
        crashes = self.unexplained()
        suspects: tuple[tuple[int, float], ...] = ()
        if crashes:
            bad = min(crashes, key=lambda c: (c.bit_count(), c))
            suspects = believe(self.problem.weights, bad, self.seen.passes, crashes).ranked()
        return Verdict(status, tuple(self.found), reason=reason, suspects=suspects)


def sum_of(masks: Iterable[int]) -> int:
    """Return the union of sets."""
    out = 0
    for mask in masks:
        out |= mask
    return out


def leads(history: History) -> list[tuple[Observation, bool]]:
    """Return the first sighting of each other failure, and whether it came earlier."""
    hunted = hunted_phase(history)
    out: dict[str, tuple[Observation, bool]] = {}
    for seen in history:
        if seen.outcome is Outcome.OTHER:
            kept = out.get(seen.signature)
            if kept is None or seen.on.bit_count() < kept[0].on.bit_count():
                out[seen.signature] = (seen, is_earlier(seen.phase, hunted))
    return list(out.values())
