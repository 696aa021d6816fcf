"""Which tests look for a mistake in which file: by area of the code, not by mistake, the quickest first."""

from __future__ import annotations

# What a path begins with, and the tests that would notice. All that match count, each once.
DETECTORS = {
    "sql/delivery/acknowledge": ["sql/test_hop.py", "conformance/test_batches_in_flight.py"],
    "sql/delivery/take": [
        "sql/test_hop.py",
        "conformance/test_priorities_of_transmission.py",
        "conformance/test_g_routing_siblings.py",
    ],
    "sql/delivery/deliver": ["sql/test_hop.py", "conformance/test_strange_arrivals.py"],
    "sql/delivery/deliver_plain": [
        "sql/test_plain_batches.py",
        "conformance/test_wakeups.py",
        "conformance/test_between_databases.py",
    ],
    "sql/delivery/deliver_one": ["sql/test_lone_messages.py"],
    "sql/delivery/deliver_piece": [
        "conformance/test_i_protocol.py",
        "conformance/test_identity_gone_back.py",
    ],
    "sql/delivery/hold_early": ["conformance/test_strange_arrivals.py", "sql/test_hop.py"],
    "sql/delivery/torn_dialogs": ["conformance/test_identity_gone_back.py"],
    "sql/dialog": [
        "conformance/test_far_sides.py",
        "conformance/test_d_receiving_and_ending.py",
        "conformance/test_strange_arrivals.py",
    ],
    "sql/sending/mark_plans": ["sql/test_send_plans.py", "conformance/test_identity.py"],
    "sql/sending/refresh_plan": ["sql/test_send_plans.py"],
    "sql/sending": ["conformance/test_d_receiving_and_ending.py", "conformance/test_far_sides.py"],
    "sql/housekeeping/fire_timers": ["conformance/test_e_timers.py"],
    "sql/housekeeping/sweep": [
        "sql/test_floors.py",
        "conformance/test_closed_targets.py",
        "conformance/test_edges_023_to_046_endpoints.py",
    ],
    "sql/queue": ["conformance/test_moving.py", "sql/test_floors.py", "sql/test_races.py"],
    "sql/conversation/move": ["conformance/test_moving.py", "conformance/test_h_permissions.py"],
    "sql/conversation/sleep": ["conformance/test_wakeups.py", "worker/test_idle.py"],
    "sql/conversation/send": ["conformance/test_h_permissions.py", "sql/test_send_plans.py"],
    "sql/wake_ups": ["conformance/test_wakeups.py", "worker/test_idle.py"],
    "sql/poison": ["conformance/test_j_poison.py", "sql/test_quarantine.py"],
    "sql/security": ["conformance/test_h_permissions.py", "conformance/test_h_roles.py"],
    "workers/transport/protocol": [
        "unit/test_fuzz.py",
        "unit/test_wire.py",
        "conformance/test_i_protocol.py",
    ],
    "workers/transport/dialog_security": [
        "conformance/test_h_dialog_security.py",
        "two_servers/test_dialog_security.py",
    ],
    "workers/transport/outgoing": [
        "unit/test_answers.py",
        "sql/test_plain_batches.py",
        "conformance/test_batches_in_flight.py",
    ],
    "workers/database": ["conformance/test_between_databases.py"],
}


def detectors_of(file: str) -> list[str]:
    """Return the test files that look for a mistake in this file, from the project's root."""
    found = [test for area, tests in DETECTORS.items() if file.startswith(area) for test in tests]
    return [f"tests/{test}" for test in dict.fromkeys(found)]
