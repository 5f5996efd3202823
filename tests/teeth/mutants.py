"""Small faults, each with the test that must find it. Data only: `test_teeth.py` plants them in a copy of the code."""

# ruff: noqa: E501 - what is replaced stands on one line, as it does in the code

from __future__ import annotations

from typing import NamedTuple

_STORES = "tests/conformance/test_stores.py::TestStores"
_BOUNDARIES = "tests/faults/test_boundaries.py"
_FENCES = "tests/faults/test_fences.py"


class Mutant(NamedTuple):
    """A fault: in ``file`` of the package, ``old`` becomes ``new``."""

    name: str
    file: str
    old: str
    new: str
    test: str
    """The test that must fail."""


MUTANTS = (
    Mutant(
        "writes are acknowledged and never committed", "store/sqlite/engine.py",
        "certain = session.commit()", "certain = True",
        f"{_STORES}::test_an_append_is_recognised_after_others_followed_it[sqlite]",
    ),
    Mutant(
        "the row count of the compare-and-set is ignored", "store/sqlite/batch.py",
        "if changed != total:", "if False:",
        f"{_STORES}::test_the_row_changes_only_from_the_state_it_is_expected_in[sqlite]",
    ),
    Mutant(
        "a change is applied whatever the epoch", "store/settle.py",
        "(change.before, change.epoch_before) != (state.status, state.epoch)", "change.before != state.status",
        f"{_STORES}::test_the_row_changes_only_from_the_state_it_is_expected_in[sqlite]",
    ),
    Mutant(
        "an append need not continue the log", "store/memory/engine.py",
        "first.seq != tail + 1", "first.seq > tail + 1",
        f"{_STORES}::test_after_a_take_over_no_append_of_the_old_owner_is_accepted[memory]",
    ),
    Mutant(
        "an append that is there already is refused", "store/settle.py",
        "if last.seq <= state.tail and self._is_there(first, last):", "if False:",
        f"{_STORES}::test_an_append_is_recognised_after_others_followed_it[sqlite]",
    ),
    Mutant(
        "the events of one append must share an id to be recognised", "store/memory/engine.py",
        "log[one.seq - 1].commit_id == one.commit_id for one in (first, last)",
        "log[one.seq - 1].commit_id == first.commit_id for one in (first, last)",
        f"{_STORES}::test_an_append_whose_events_have_ids_of_their_own_is_recognised[memory]",
    ),
    Mutant(
        "our own create looks like somebody else's", "store/settle.py",
        "return COMMITTED if self._is_there(write.events[0], write.events[-1]) else Existing(row)", "return Existing(row)",
        f"{_STORES}::test_a_create_that_is_there_already_is_committed_again_without_effect[sqlite]",
    ),
    Mutant(
        "host durability does not sync", "store/sqlite/session.py",
        '"host": 2', '"host": 1', "tests/faults/test_counting.py",
    ),
    Mutant(
        "the key of an effect changes with the attempt", "kernel/kinds/step.py",
        'return f"{self.run.run_id}:{self.id}"', 'return f"{self.run.run_id}:{self.id}:{self.attempts}"',
        f"{_FENCES}::test_every_attempt_of_a_step_has_the_same_key",
    ),
    Mutant(
        "a claim keeps the epoch", "model/claim.py", "epoch = row.epoch + 1", "epoch = row.epoch",
        f"{_STORES}::test_a_claim_is_recorded_in_the_log_and_the_row[memory]",
    ),
    Mutant(
        "a heartbeat raises the dead", "store/sql/sqlite/queries.sql",
        "expires_at = ?2 + ?3 where id = ?1 and state = 'live'", "expires_at = ?2 + ?3, state = 'live' where id = ?1",
        f"{_STORES}::test_a_heartbeat_does_not_raise_the_dead[sqlite]",
    ),
    Mutant(
        "a sweep buries the living", "store/sql/sqlite/queries.sql",
        "set state = 'dead' where state = 'live' and expires_at <= ?", "set state = 'dead' where state = 'live' and 0 <= ?",
        f"{_STORES}::test_a_sweep_marks_only_workers_whose_lease_has_ended[sqlite]",
    ),
    Mutant(
        "an interrupted at-most-once attempt is made again", "runtime/attempt.py",
        "if operation.intent >= number:", "if False:",
        "tests/examples/test_examples.py::test_at_most_once_does_not_send_again_what_a_crash_cut_off",
    ),
    Mutant(
        "a purged id is free again", "store/sql/sqlite/queries.sql",
        "union all\nselect run_id from request where run_id in (select value from json_each(?1))", "",
        f"{_STORES}::test_a_purged_id_is_answered_with_what_it_left[sqlite]",
    ),
    Mutant(
        "a message that came while the run was put to sleep does not wake it", "store/sql/sqlite/queries.sql",
        "wake_at = case when c.wakes and inbox_n > c.inbox_seen then",
        "wake_at = case when c.wakes and inbox_n < c.inbox_seen then",
        f"{_STORES}::test_a_release_that_has_not_seen_a_message_is_due_at_once[sqlite]",
    ),
    Mutant(
        "a hand-back counts as a death", "model/claim.py", "deaths += not handed_back", "deaths += 1",
        f"{_FENCES}::test_only_claims_that_recorded_nothing_and_were_not_handed_back_count_as_deaths",
    ),
    Mutant(
        "a repeat of a request to cancel cancels again", "runtime/history.py",
        "if request in summary.requests:", "if False:",
        f"{_BOUNDARIES}::test_a_cancel_that_was_sent_twice_arrives_once",
    ),
    Mutant(
        "a worker forgets runs whose claim was never answered", "runtime/returning.py",
        "if self._missing.get(run_id) == epoch:", "if False:",
        f"{_FENCES}::test_a_run_whose_claim_was_never_answered_is_given_back_and_executed",
    ),
    Mutant(
        "a step is tried once too often", "runtime/attempt.py",
        "spent >= retry.attempts", "spent > retry.attempts",
        f"{_FENCES}::test_a_step_is_tried_as_often_as_it_says",
    ),
    Mutant(
        "a run that has not ended is purged", "store/memory/engine.py",
        "if row.status not in TERMINAL:\n            return Closed(row.status)\n        check_values(write)", "check_values(write)",
        f"{_STORES}::test_a_run_that_is_not_terminal_is_not_purged[memory]",
    ),
    Mutant(
        "the chain does not cover the payload", "model/event.py",
"state, digest, detail, given, payload)\n    chain = blake2b", "state, digest, detail, given, None)\n    chain = blake2b",
        "tests/verify/test_damage.py::test_a_sound_file_has_no_findings",
    ),
    Mutant(
        "a dead worker still claims", "store/memory/engine.py",
        "if not self._leases.is_live(request.worker_id):", "if False:",
        f"{_STORES}::test_a_worker_marked_dead_claims_nothing[memory]",
    ),
    Mutant(
        "a claim ignores which workflows the worker has", "store/memory/engine.py",
        "if not wanted or row.code not in request.codes:", "if not wanted:",
        f"{_STORES}::test_only_runs_of_the_given_queues_and_workflows_are_claimed[memory]",
    ),
    Mutant(
        "another start under the same id is taken for a repeat", "api/starting.py",
        "if found.input_digest != row.input_digest and", "if False and",
        "tests/cases/test_idempotency.py::test_case_ide_05",
    ),
    Mutant(
        "the body's clock stands still", "kernel/execution.py",
        "name, _, self.logical_time = event[2:8]", "name, _, at = event[2:8]; self.logical_time = self.logical_time or at",
        "tests/runtime/test_logical_time.py::test_a_sleep_at_the_very_start_of_a_body_lasts_as_long_as_it_says",
    ),
    Mutant(
        "an append may skip a place of the log", "store/sqlite/batch.py",
        "if unsure:\n        _check_gap(connection, unsure, numbers)", "pass",
        f"{_STORES}::test_an_append_that_skips_a_place_is_refused[sqlite]",
    ),
    Mutant(
        "what was rolled back is taken for recorded", "store/sqlite/engine.py",
        "self._own_version = -1\n        self._tails.clear()\n\n    def _agree", "self._own_version = -1\n\n    def _agree",
        "tests/store/sqlite/test_commit.py::test_what_was_rolled_back_is_not_taken_for_recorded",
    ),
    Mutant(
        "a run's number is believed whatever others wrote", "store/sqlite/engine.py",
        "self._tails.others_wrote()\n        row = ", "row = ",
        "tests/store/test_tails.py::test_what_a_purged_run_was_known_by_is_not_written_to",
    ),
    Mutant(
        "a claim that was undone is believed", "store/server/claim.py",
        "self.answer = Claims([])  # a try before this one may have been undone", "pass",
        "tests/store/server/test_claims.py::test_a_claim_that_is_undone_takes_nothing[postgres]",
    ),
    Mutant(
        "a run that somebody else has just claimed is claimed with its key", "store/sql/postgres/queries.sql",
        "and r.priority = $3::bigint and r.wake_at is not null and r.wake_at <= $4::bigint\n    for no key", "for no key",
        "tests/store/postgres/test_claims.py::test_a_run_with_a_key_that_is_claimed_as_another_claim_looks_is_left_alone[postgres]",
    ),
    Mutant(
        "an answer of the server is taken for whole too early", "store/mysql/frames.py",
        "self.complete = not status & _MORE_RESULTS", "self.complete = True",
        "tests/store/mysql/test_frames.py::test_it_is_complete_with_its_last_byte_and_not_before",
    ),
    Mutant(
        "a failed COMMIT is believed to have failed", "store/settle.py",
        "return book.commit_id(last.run_id, last.seq) == last.commit_id", "return False",
        "tests/store/sqlite/test_commit.py::test_a_commit_that_failed_but_happened_is_found",
    ),
    Mutant(
        "a refused append lets those behind it through", "store/settle.py",
        "if write.run_id in self._doubtful and not self._continues(write):", "if False:",
        f"{_STORES}::test_an_append_behind_a_refused_create_is_refused[sqlite]",
    ),
    Mutant(
        "a file that another machine took is written on", "store/sqlite/engine.py",
        "if boot_id != self._machine.boot_id:", "if False:",
        "tests/store/sqlite/test_opening.py::test_a_file_that_another_machine_took_is_written_no_more",
    ),
    Mutant(
        "the clock follows a base that went back", "store/sqlite/clock.py",
        "floor = 0 if base > self._state[0] else self.now() + _SLACK_US", "floor = 0",
        "tests/store/sqlite/test_clock.py::test_a_handle_never_goes_back_when_the_base_does",
    ),
    Mutant(
        "a damaged log is read", "store/history.py",
        "broken = _broken(run_id, events, skip=skip)", "broken = None",
        "tests/store/sqlite/test_commit.py::test_a_log_that_was_tampered_with_is_not_read",
    ),
    Mutant(
        "nobody is told that a step elsewhere has ended", "store/sqlite/batch.py",
        "if change.tell is not None:", "if False:",
        f"{_STORES}::test_an_append_puts_its_message_into_the_inbox_of_the_other_run[sqlite]",
    ),
    Mutant(
        "the key of a step says where it is executed", "kernel/kinds/step.py",
        'f"{self.run.run_id}:{self.id}" if caller is None else caller.key', 'f"{self.run.run_id}:{self.id}"',
        "tests/elsewhere/test_same_as_here.py::test_arguments_and_what_a_step_knows_of_itself",
    ),
    Mutant(
        "a run that leaves overtakes what its steps have recorded", "runtime/tape.py",
        'never delivered."""\n        self._outbox.flush()', 'never delivered."""',
        "tests/unit/runtime/test_turns.py::test_the_order_of_one_log_is_that_of_its_recording[False]",
    ),
    Mutant(
        "whoever ends the process leaves the others behind", "runtime/turns.py",
        "run.pump_soon()\n            raise", "pass\n            raise",
        "tests/runtime/test_fatal_steps.py::test_the_end_of_a_process_in_one_run_does_not_stop_those_it_goes_on_with[start]",
    ),
    Mutant(
        "a batch that was refused on its way counts as committed", "store/writer.py",
        "if flight.error is None:", "if True:",
        "tests/store/test_writer_sending.py::test_a_flight_that_fails_is_landed_on_the_thread",
    ),
    Mutant(
        "a writer that is aborted leaves its batch on its way", "store/writer.py",
        "self._watch.cancel()", "pass",
        "tests/store/test_writer_sending.py::test_a_writer_that_is_aborted_gives_its_flight_up",
    ),
    Mutant(
        "a purge waits for nobody who has looked for its run", "store/sql/postgres/0007_log_guard_pre.sql",
        "perform pg_advisory_xact_lock(hashtextextended('perdure.event', 0));", "null;",
        "tests/store/postgres/test_log_guard.py::test_a_purge_waits_for_who_continues_the_log_and_takes_that_along[postgres-3]",
    ),
    Mutant(
        "a full batch waits for the loop's next turn", "store/writer.py",
        "self._soon is not None and self._sends and", "False and",
        "tests/store/test_writer_sending.py::test_a_full_batch_is_sent_at_once_whatever_the_loop_has_to_do_before_its_next_turn",
    ),
    Mutant(
        "a claim takes one run more than its queue's limit", "model/queue.py",
        "else row.concurrency - usage.total", "else row.concurrency - usage.total + 1",
        f"{_STORES}::test_no_more_runs_are_owned_than_the_limit_says[memory]",
    ),
    Mutant(
        "a run that has ended keeps its slot", "store/sql/sqlite/queries.sql",
        "s.epoch = r.epoch\n    and (r.status = 'running' or (?2 = 1 and r.status = 'waiting'))\nwhere s.queue",
        "s.epoch = r.epoch\nwhere s.queue",
        f"{_STORES}::test_a_slot_is_free_once_its_run_is_not_owned[sqlite-run_completed]",
    ),
    Mutant(
        "a claim is counted in a rate's window under a time before it", "model/queue.py",
        "return at - at % width + width - 1", "return at - at % width",
        "tests/unit/model/test_queue.py::test_a_claim_is_counted_until_it_has_left_every_window",
    ),
    Mutant(
        "a fair queue serves the same key again", "store/source.py",
        "turn if self._fair else 0", "0",
        f"{_STORES}::test_in_a_fair_queue_keys_take_turns[sqlite-1]",
    ),
)  # fmt: skip
