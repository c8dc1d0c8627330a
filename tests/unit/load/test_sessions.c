/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions at simulated clients and engines. */
#include "rig.h"

#define SESSIONS                                                                                   \
	(char *)"--instant", (char *)"--engines", (char *)"4", (char *)"--sessions", (char *)"1",  \
		(char *)"--seconds", (char *)"9", (char *)"--abandon-share", (char *)"0",          \
		(char *)"--release-share", (char *)"0"

/* Deliver SESSION_OPEN or _CLOSE number @id of the first session. @return the code of the answer.
 */
static uint16_t session_message(uint8_t kind, uint32_t engine, uint64_t id)
{
	const struct kvr_wire_ids ids = {load.engines[engine].worker, id, 0, 1, 1};
	const struct kvr_wire_session body = {
		.timeout_s = kind == KVR_SESSION_OPEN ? opt.session_timeout + 30 : 0};
	char name[LOAD_SESSION_NAME];
	const struct kvr_wire_hdr *h;
	uint8_t frame[256];

	load_session_name(name, load.clients[0].source, 1);
	kvr_put_session(frame, sizeof(frame), kind, &ids, body,
			(struct kvr_str){name, (uint32_t)strlen(name)});
	n_sent = 0;
	load_session_frame(&load, (const struct kvr_wire_hdr *)frame, engine);
	h = find_sent(kind + 1, 0);
	if (h == NULL || h->id != id || h->source != load.engines[engine].worker)
		return UINT16_MAX;
	return ((const struct kvr_wire_session_status *)kvr_frame_body(h))->code;
}

/* Begin the lane's next turn. @return its slot. */
static uint32_t next_turn(void)
{
	const uint32_t slot = load.free[load.n_free - 1];

	load.now += SECOND;
	load_lanes_duty(&load);
	CU_ASSERT_EQUAL_FATAL(load.n_free + 1, load.n_slots);
	n_sent = 0;
	return slot;
}

static void turn_comes_to(uint32_t slot, uint32_t engine)
{
	struct dispatch d = {.slot = slot,
			     .engine = engine,
			     .max_tokens = load.slots[slot].prompt->osl,
			     .handle = load.slots[slot].id};
	struct load_leg *g = &load.slots[slot].leg;
	char name[LOAD_SESSION_NAME];
	const struct kvr_wire_response last = {.seq = 0, .flags = KVR_RESP_F_FIN};

	load_session_name(name, load.clients[0].source, load.slots[slot].session);
	kvr_hint_put_session(hint_room(&d), load.slots[slot].action, KVR_NONE32, name);
	deliver_dispatch(&d);
	load_client_item(&load, slot, &last, load.now);
	load_client_acks(&load);
	g->estate = LOAD_E_IDLE; /* acknowledged */
	load_slot_release(&load, slot);
}

static void a_session_is_opened_used_and_closed_once(void)
{
	uint32_t slot;

	BEGIN(SESSIONS);
	load_lanes_begin(&load);
	slot = next_turn();
	CU_ASSERT_EQUAL(load.slots[slot].action, KVR_ACTION_OPEN);
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_OPEN, 1, 5), 0);
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_OPEN, 1, 5), 0); /* a repetition */
	turn_comes_to(slot, 1);
	for (uint32_t i = 1; i < opt.turns; i++) {
		slot = next_turn();
		CU_ASSERT_EQUAL(load.slots[slot].action,
				i + 1 < opt.turns ? KVR_ACTION_NONE : KVR_ACTION_CLOSE);
		turn_comes_to(slot, 1);
	}
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_OPEN, 1, 9), 0); /* its timeout is new */
	CU_ASSERT_EQUAL(counter_value(LOAD_OPENED), 1);
	CU_ASSERT_EQUAL(counter_value(LOAD_TURNS_ON_BOUND), opt.turns - 1);
	CU_ASSERT_EQUAL(counter_value(LOAD_SESSIONS_OPEN), 1);
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_CLOSE, 1, 6), 0);
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_CLOSE, 1, 6), 0);
	CU_ASSERT_EQUAL(counter_value(LOAD_SESSIONS_OPEN), 0);
	CU_ASSERT_EQUAL(counter_value(LOAD_CLOSED), 1);
	CU_ASSERT_EQUAL(counter_value(LOAD_CLOSED_TWICE), 0);
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_CLOSE, 1, 7), 0);
	CU_ASSERT_EQUAL(counter_value(LOAD_CLOSED_TWICE), 1);
	CU_ASSERT_EQUAL(count_violations(), 0);
	end_test();
}

static void a_turn_at_another_engine_is_misplaced(void)
{
	uint32_t slot;

	BEGIN(SESSIONS);
	load_lanes_begin(&load);
	slot = next_turn();
	turn_comes_to(slot, 1); /* before it is opened */
	CU_ASSERT_EQUAL(counter_value(LOAD_MISPLACED), 1);
	session_message(KVR_SESSION_OPEN, 3, 4);
	CU_ASSERT_EQUAL(counter_value(LOAD_OPENED_TWICE), 0);
	session_message(KVR_SESSION_OPEN, 1, 5);
	CU_ASSERT_EQUAL(counter_value(LOAD_OPENED_TWICE), 1);
	slot = next_turn();
	turn_comes_to(slot, 2);
	CU_ASSERT_EQUAL(counter_value(LOAD_MISPLACED), 2);
	load_session_killed(&load, 1);
	slot = next_turn();
	turn_comes_to(slot, 2); /* its session is lost: any engine is right */
	CU_ASSERT_EQUAL(counter_value(LOAD_MISPLACED), 2);
	CU_ASSERT_EQUAL(counter_value(LOAD_TURNS_UNBOUND), 1);
	CU_ASSERT_EQUAL(counter_value(LOAD_SESSIONS_LOST), 1);
	end_test();
}

static void an_unrequested_close_is_counted_as_early(void)
{
	uint32_t slot;

	BEGIN(SESSIONS);
	load_lanes_begin(&load);
	slot = next_turn();
	session_message(KVR_SESSION_OPEN, 1, 5);
	session_message(KVR_SESSION_CLOSE, 1, 6); /* the first turn is rerouted */
	CU_ASSERT_EQUAL(counter_value(LOAD_CLOSED_EARLY), 0);
	session_message(KVR_SESSION_OPEN, 1, 7);
	turn_comes_to(slot, 1);
	session_message(KVR_SESSION_CLOSE, 1, 8);
	CU_ASSERT_EQUAL(counter_value(LOAD_CLOSED_EARLY), 1);
	end_test();
}

static void affinity_binds_without_an_action(void)
{
	uint32_t slot;

	BEGIN(SESSIONS, (char *)"--affinity");
	load_lanes_begin(&load);
	slot = next_turn();
	CU_ASSERT_EQUAL(load.slots[slot].action, KVR_ACTION_NONE);
	turn_comes_to(slot, 3);
	slot = next_turn();
	turn_comes_to(slot, 3);
	CU_ASSERT_EQUAL(counter_value(LOAD_BOUND), 1);
	CU_ASSERT_EQUAL(counter_value(LOAD_TURNS_ON_BOUND), 1);
	slot = next_turn();
	turn_comes_to(slot, 0);
	CU_ASSERT_EQUAL(counter_value(LOAD_MISPLACED), 1);
	end_test();
}

static void engines_reject_a_share_of_opens_consistently(void)
{
	BEGIN(SESSIONS, (char *)"--open-fail-share", (char *)"1");
	load_lanes_begin(&load);
	next_turn();
	CU_ASSERT_NOT_EQUAL(session_message(KVR_SESSION_OPEN, 1, 5), 0);
	CU_ASSERT_NOT_EQUAL(session_message(KVR_SESSION_OPEN, 1, 5), 0);
	CU_ASSERT_EQUAL(counter_value(LOAD_OPENS_REFUSED), 1);
	CU_ASSERT_EQUAL(counter_value(LOAD_SESSIONS_OPEN), 0);
	end_test();
}

static void sessions_end_with_the_epoch_of_their_engine(void)
{
	struct {
		struct kvr_wire_hdr h;
		struct kvr_wire_rejected r;
	} f = {.h = {.kind = KVR_REJECTED},
	       .r = {.code = KVR_E_UNKNOWN_WORKER, .kind = KVR_HEARTBEAT}};
	uint32_t life;

	BEGIN(SESSIONS);
	load_lanes_begin(&load);
	turn_comes_to(next_turn(), 1);
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_OPEN, 1, 5), 0);
	CU_ASSERT_EQUAL(counter_value(LOAD_SESSIONS_OPEN), 1);
	life = load.engines[1].epoch;
	f.h.source = load.engines[1].worker;
	load_registration_frame(&load, &f.h);
	load_registration_frame(&load, &f.h); /* of another heartbeat */
	CU_ASSERT_EQUAL(load.engines[1].epoch, life + 1);
	CU_ASSERT_EQUAL(counter_value(LOAD_SESSIONS_OPEN), 0);
	CU_ASSERT_EQUAL(counter_value(LOAD_SESSIONS_LOST), 1);
	end_test();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_session_is_opened_used_and_closed_once),
		KVR_CASE(a_turn_at_another_engine_is_misplaced),
		KVR_CASE(an_unrequested_close_is_counted_as_early),
		KVR_CASE(affinity_binds_without_an_action),
		KVR_CASE(engines_reject_a_share_of_opens_consistently),
		KVR_CASE(sessions_end_with_the_epoch_of_their_engine),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("load sessions", tests);
}
