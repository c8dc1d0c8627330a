/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulated engines: legs, crashes. */
#include "rig.h"

/* ---- legs ---- */

static void a_prefill_leg_answers_one_item_with_its_result(void)
{
	struct load_transfer want;
	struct dispatch d;

	BEGIN(PAIR);
	d = prefill_leg(start_route(0, 0, 0), P_SYNC, 1);
	deliver_dispatch(&d);
	CU_ASSERT_PTR_NOT_NULL_FATAL(find_item(0));
	CU_ASSERT_EQUAL(find_item(0)->flags, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(find_item(0)->generated_tokens, 1);
	CU_ASSERT_PTR_NULL(find_item(1));
	CU_ASSERT_EQUAL(find_sent(KVR_RESPONSE, 0)->handle, 77);
	want = load_pair_result(&load, d.slot);
	CU_ASSERT_TRUE(load_transfer_is(find_item(0) + 1, find_item(0)->data_len, &want));
	CU_ASSERT_EQUAL(want.worker, load.engines[P_SYNC].worker);
	CU_ASSERT_EQUAL(want.dp_rank, 1);
	CU_ASSERT_EQUAL(count_violations(), 0);
	end_test();
}

static void a_decode_leg_waits_for_the_room_of_its_prefill_leg(void)
{
	struct dispatch p, d;

	BEGIN(PAIR);
	d = decode_leg(start_route(0, 0, 0), D_FIRST);
	add_worker(&d, P_BOOTSTRAP);
	add_room(&d, 41);
	deliver_dispatch(&d);
	CU_ASSERT_PTR_NULL(find_item(0));
	CU_ASSERT_PTR_NOT_NULL(find_sent(KVR_DISPATCH_ACK, 0));
	p = prefill_leg(d.slot, P_BOOTSTRAP, 1);
	add_room(&p, 41);
	deliver_dispatch(&p);
	CU_ASSERT_PTR_NOT_NULL_FATAL(find_item(2)); /* the result, and two items of the answer */
	CU_ASSERT_EQUAL(find_item(2)->flags, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(counter_value(LOAD_TRANSFERS), 1);
	CU_ASSERT_EQUAL(count_violations(), 0);
	end_test();
}

static void a_decode_leg_without_its_prefill_leg_ends_with_an_error(void)
{
	struct dispatch p, d;

	BEGIN(PAIR);
	d = decode_leg(start_route(0, 0, 0), D_FIRST);
	add_worker(&d, P_BOOTSTRAP);
	add_room(&d, 41);
	deliver_dispatch(&d);
	p = prefill_leg(d.slot, P_BOOTSTRAP, 1);
	add_room(&p, 43); /* of the right rank, but another room */
	deliver_dispatch(&p);
	load.now += 4 * SECOND;
	load_engine_check(&load, d.slot);
	CU_ASSERT_EQUAL(counter_value(LOAD_TRANSFER_TIMEOUTS), 0);
	load.now += 2 * SECOND;
	n_sent = 0;
	load_engine_check(&load, d.slot);
	CU_ASSERT_EQUAL(counter_value(LOAD_TRANSFER_TIMEOUTS), 1);
	CU_ASSERT_EQUAL(counter_value(LOAD_V_ROOM), 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(find_item(1)); /* after that of the prefill leg */
	CU_ASSERT_EQUAL(find_item(1)->flags, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
	CU_ASSERT_EQUAL(find_item(1)->data_len, 0);
	end_test();
}

static void a_result_is_verified_to_the_byte(void)
{
	struct load_transfer t;
	struct dispatch p, d;

	for (uint32_t bad = 0; bad < 4; bad++) {
		BEGIN(PAIR);
		p = prefill_leg(start_route(0, 0, 0), P_SYNC, 0);
		deliver_dispatch(&p);
		t = load_pair_result(&load, p.slot);
		t.n_blocks ^= bad == 1;
		d = decode_leg(p.slot, D_SECOND);
		add_worker(&d, bad == 3 ? P_BOOTSTRAP : P_SYNC);
		if (bad != 2)
			kvr_hint_put(hint_room(&d), KVR_HINT_PREFILL_RESULT, &t, sizeof(t), NULL,
				     0);
		deliver_dispatch(&d);
		CU_ASSERT_EQUAL(counter_value(LOAD_TRANSFERS), bad == 0);
		CU_ASSERT_EQUAL(counter_value(LOAD_V_RESULT), bad != 0);
		CU_ASSERT_PTR_NOT_NULL(find_item(2)); /* the leg goes on in any case */
		end_test();
	}
}

static void a_result_before_the_end_of_the_prefill_is_an_error(void)
{
	struct load_transfer t;
	struct dispatch p, d;

	BEGIN((char *)"--disagg", (char *)"2:2");
	p = prefill_leg(start_route(0, 0, 0), P_SYNC, 0);
	for (uint32_t run = 0; run < 2; run++) {
		deliver_dispatch(&p);
		t = load_pair_result(&load, p.slot);
		d = decode_leg(p.slot, D_FIRST);
		d.handle += run;
		add_worker(&d, P_SYNC);
		kvr_hint_put(hint_room(&d), KVR_HINT_PREFILL_RESULT, &t, sizeof(t), NULL, 0);
		deliver_dispatch(&d);
		CU_ASSERT_EQUAL(counter_value(LOAD_V_RESULT), 1 + run);
		load_engine_timers(&load); /* the prefill ends */
		CU_ASSERT_TRUE(load.pairs[p.slot].finished);
		p.handle += 10; /* and begins again */
	}
	end_test();
}

static void each_error_in_a_leg_is_counted(void)
{
	static const enum load_counter noticed[] = {
		LOAD_V_MAX_TOKENS, LOAD_V_MAX_TOKENS, LOAD_V_FLAGS,  LOAD_V_FLAGS, LOAD_V_ROOM,
		LOAD_V_HINTS,	   LOAD_V_HINTS,      LOAD_V_WORKER, LOAD_V_FLAGS};

	for (uint32_t bad = 0; bad < RTE_DIM(noticed); bad++) {
		struct dispatch p, d;

		BEGIN(PAIR);
		p = prefill_leg(start_route(0, 0, 0), P_BOOTSTRAP, bad == 4 ? 0 : 1);
		d = decode_leg(p.slot, D_FIRST);
		p.max_tokens += bad == 0;
		d.max_tokens -= bad == 1;
		p.flags |= bad == 2 ? KVR_REQ_F_DIRECT : 0;
		if (bad == 3) { /* an aggregated request with the flag of a leg */
			d.flags |= KVR_REQ_F_PREFILL_LEG;
			d.phase = KVR_ROLE_AGGREGATED;
		}
		d.phase = bad == 8 ? KVR_ROLE_AGGREGATED : d.phase;
		if (bad != 5)
			add_room(&p, 41);
		add_worker(&d, bad == 7 ? D_SECOND : P_BOOTSTRAP);
		kvr_hint_put_bootstrap(
			hint_room(&d), 41,
			(uint16_t)(load_bootstrap_port(&load, P_BOOTSTRAP) + (bad == 6)), opt.ip);
		deliver_dispatch(&p);
		deliver_dispatch(&d);
		CU_ASSERT_EQUAL(counter_value(noticed[bad]), 1);
		CU_ASSERT_EQUAL(count_violations(), 1);
		end_test();
	}
}

static void a_leg_runs_once_however_often_it_is_dispatched(void)
{
	struct kvr_wire_response_ack ack = {1, KVR_RACK_F_FIN};
	struct kvr_wire_ids ids;
	uint8_t frame[64];
	struct dispatch p;

	BEGIN(PAIR);
	p = prefill_leg(start_route(0, 0, 0), P_SYNC, 0);
	deliver_dispatch(&p);
	deliver_dispatch(&p);
	CU_ASSERT_PTR_NULL(find_item(1));
	ids = (struct kvr_wire_ids){load.clients[load.slots[p.slot].client].source,
				    load.slots[p.slot].id, 77, 1, 1};
	kvr_put_response_ack(frame, sizeof(frame), &ids, &ack);
	load_engine_frame(&load, (const struct kvr_wire_hdr *)frame, P_BOOTSTRAP);
	CU_ASSERT_EQUAL(load.pairs[p.slot].prefill.estate, LOAD_E_SENT); /* not its engine */
	load_engine_frame(&load, (const struct kvr_wire_hdr *)frame, P_SYNC);
	CU_ASSERT_EQUAL(load.pairs[p.slot].prefill.estate, LOAD_E_IDLE);
	deliver_dispatch(&p);
	CU_ASSERT_PTR_NULL(find_item(1));
	CU_ASSERT_PTR_NOT_NULL(find_sent(KVR_DISPATCH_ACK, 1));
	p.handle++; /* another leg: the request was rerouted */
	deliver_dispatch(&p);
	CU_ASSERT_PTR_NOT_NULL(find_item(1));
	end_test();
}

static void pieces_that_were_lost_are_asked_for(void)
{
	const struct kvr_wire_missing *m;
	struct dispatch p;
	uint64_t word;
	uint32_t n;

	BEGIN(PAIR);
	p = prefill_leg(start_route(0, 3, 0), P_BOOTSTRAP, 0);
	add_room(&p, 40);
	p.lost = 1 << 2;
	deliver_dispatch(&p);
	CU_ASSERT_PTR_NULL(find_sent(KVR_MISSING, 0));
	CU_ASSERT_PTR_NULL(find_sent(KVR_RESPONSE, 0));
	p.lost = ~UINT64_C(1); /* the first piece again */
	deliver_dispatch(&p);
	CU_ASSERT_PTR_NOT_NULL_FATAL(find_sent(KVR_MISSING, 0));
	m = kvr_frame_body(find_sent(KVR_MISSING, 0));
	n = (m->msg_len + m->unit - 1) / m->unit;
	CU_ASSERT_TRUE_FATAL(n > 3 && n <= 64);
	CU_ASSERT_EQUAL(m->kind, KVR_DISPATCH);
	CU_ASSERT_EQUAL(m->unit, 96);
	CU_ASSERT_EQUAL(m->msg_seq, 1);
	CU_ASSERT_EQUAL(m->first, 0);
	CU_ASSERT_EQUAL_FATAL(m->n_words, 1);
	memcpy(&word, m + 1, sizeof(word));
	CU_ASSERT_EQUAL(word, (UINT64_C(1) << n) - 1 - 3); /* without 0 and 1 */
	p.lost = 3;
	deliver_dispatch(&p);
	CU_ASSERT_PTR_NOT_NULL(find_sent(KVR_RESPONSE, 0));
	CU_ASSERT_EQUAL(counter_value(LOAD_PREFILL_LEGS), 1);
	CU_ASSERT_EQUAL(count_violations(), 0);
	end_test();
}

static void accepted_must_agree_with_the_engines(void)
{
	for (uint32_t bad = 0; bad < 6; bad++) {
		struct dispatch p, d;
		struct kvr_wire_accepted a;

		BEGIN(PAIR);
		p = prefill_leg(start_route(0, 0, 0), P_BOOTSTRAP, 1);
		add_room(&p, 41);
		d = decode_leg(p.slot, D_FIRST);
		add_worker(&d, P_BOOTSTRAP);
		add_room(&d, 41);
		deliver_dispatch(&p);
		deliver_dispatch(&d);
		a = (struct kvr_wire_accepted){
			.worker = load.engines[bad == 1 ? D_SECOND : D_FIRST].worker,
			.state = KVR_STATE_DISPATCHED,
			.prefill_worker = load.engines[bad == 2 ? P_SYNC : P_BOOTSTRAP].worker,
			.prefill_dp_rank = bad == 3 ? 0 : 1,
			.prefill_overlap_blocks = bad == 5 ? 1 : 0,
			.path = bad == 4 ? KVR_WAY_SYNC : KVR_WAY_BOOTSTRAP};
		conclude_request(p.slot, a);
		CU_ASSERT_EQUAL(counter_value(LOAD_COMPLETED), 1);
		CU_ASSERT_EQUAL(counter_value(LOAD_V_ACCEPTED), bad != 0);
		CU_ASSERT_EQUAL(counter_value(bad == 4 ? LOAD_PATH_SYNC : LOAD_PATH_BOOTSTRAP), 1);
		end_test();
	}
}

/* ---- crashes ---- */

static void a_killed_engine_drops_its_requests_and_all_frames(void)
{
	struct kvr_wire_hdr h = {.kind = KVR_DISPATCH};
	struct dispatch p;

	BEGIN((char *)"--disagg", (char *)"1:1", (char *)"--kill-every", (char *)"1",
	      (char *)"--kill-mode", (char *)"silent");
	load.engines[1].state = LOAD_W_DEAD; /* leaves one engine to choose */
	p = prefill_leg(start_route(0, 0, 0), 0, 0);
	add_room(&p, 40);
	deliver_dispatch(&p);
	CU_ASSERT_EQUAL(load.pairs[p.slot].prefill.estate, LOAD_E_PREFILL);
	load_kill_duty(&load);
	CU_ASSERT_EQUAL(load.engines[0].state, LOAD_W_DEAD);
	CU_ASSERT_EQUAL(load.pairs[p.slot].prefill.estate, LOAD_E_IDLE);
	CU_ASSERT_EQUAL(engine_running(&load.ranks[0].model), 0);
	CU_ASSERT_EQUAL(counter_value(LOAD_KILLED_REQUESTS), 1);
	CU_ASSERT_TRUE(load_kill_drops_frame(&load, &h, 0));
	h.kind = KVR_WELCOME;
	CU_ASSERT_TRUE(load_kill_drops_frame(&load, &h, 0));
	load.now = load.engines[0].revive_at;
	load.next_duty = 0;
	for (uint32_t i = 0; i < load.n_clients; i++)
		load.clients[i].connected = true;
	load_registration_duty(&load);
	CU_ASSERT_EQUAL(load.engines[0].state, LOAD_W_HELLO);
	CU_ASSERT_EQUAL(load.engines[0].epoch, load.epoch + 1);
	CU_ASSERT_FALSE(load_kill_drops_frame(&load, &h, 0)); /* WELCOME */
	h.kind = KVR_DISPATCH;
	CU_ASSERT_TRUE(load_kill_drops_frame(&load, &h, 0));
	end_test();
}

/* Deliver the router's answer to a HELLO or GOODBYE of epoch @life. */
static void deliver_worker_answer(uint8_t kind, uint32_t life)
{
	struct {
		struct kvr_wire_hdr h;
		struct kvr_wire_welcome w;
	} f = {.h = {.kind = kind, .source = load.engines[0].worker, .id = life},
	       .w = {.heartbeat_ms = 100}};

	load_registration_frame(&load, &f.h);
}

static void duty_at(uint64_t now)
{
	load.now = now;
	load.next_duty = 0;
	load_registration_duty(&load);
}

static void answers_to_an_earlier_epoch_are_ignored(void)
{
	struct load_engine *e;
	uint32_t life;

	BEGIN((char *)"--disagg", (char *)"1:1", (char *)"--kill-every", (char *)"1");
	e = &load.engines[0];
	for (uint32_t i = 0; i < load.n_clients; i++)
		load.clients[i].connected = true;
	load.engines[1].state = LOAD_W_GONE; /* leaves one engine to choose */
	load_kill_duty(&load);
	life = e->epoch;
	duty_at(load.now); /* GOODBYE, and its copy */
	duty_at(load.now + SECOND / 10);
	CU_ASSERT_EQUAL(e->state, LOAD_W_DYING);
	duty_at(e->revive_at);
	CU_ASSERT_EQUAL(e->state, LOAD_W_HELLO);
	CU_ASSERT_EQUAL(e->epoch, life + 1);
	deliver_worker_answer(KVR_WELCOME, life);
	CU_ASSERT_EQUAL(e->state, LOAD_W_HELLO);
	deliver_worker_answer(KVR_GOODBYE_ACK, life);
	CU_ASSERT_EQUAL(e->state, LOAD_W_HELLO);
	deliver_worker_answer(KVR_WELCOME, life + 1);
	CU_ASSERT_EQUAL(e->state, LOAD_W_SERVING);
	CU_ASSERT_FALSE(e->unwelcomed);
	deliver_worker_answer(KVR_GOODBYE_ACK, life);
	CU_ASSERT_EQUAL(e->state, LOAD_W_SERVING);
	load.now = load.next_kill;
	load_kill_duty(&load);
	deliver_worker_answer(KVR_GOODBYE_ACK, life);
	CU_ASSERT_EQUAL(e->state, LOAD_W_DYING); /* the router must receive this one, too */
	deliver_worker_answer(KVR_GOODBYE_ACK, life + 1);
	CU_ASSERT_EQUAL(e->state, LOAD_W_DEAD);
	end_test();
}

/* An earlier run has used the epoch: the engine takes the next one, once. */
static void a_stale_epoch_is_replaced_by_the_next_one(void)
{
	struct {
		struct kvr_wire_hdr h;
		struct kvr_wire_rejected r;
	} f = {.h = {.kind = KVR_REJECTED}, .r = {.code = KVR_E_STALE_EPOCH, .kind = KVR_HELLO}};
	struct load_engine *e;
	uint32_t life;

	BEGIN(PAIR);
	e = &load.engines[0];
	e->state = LOAD_W_HELLO;
	life = e->epoch;
	f.h.source = e->worker;
	load_registration_frame(&load, &f.h); /* without an epoch */
	CU_ASSERT_EQUAL(e->epoch, life);
	f.r.detail[0] = life + 7;
	load_registration_frame(&load, &f.h);
	CU_ASSERT_EQUAL(e->epoch, life + 8);
	CU_ASSERT_EQUAL(e->next_tx, load.now);
	load_registration_frame(&load, &f.h); /* the answer to a copy */
	CU_ASSERT_EQUAL(e->epoch, life + 8);
	f.r.detail[0] = UINT32_MAX;
	load_registration_frame(&load, &f.h);
	CU_ASSERT_EQUAL(e->epoch, life + 8);
	deliver_worker_answer(KVR_WELCOME, life + 8);
	CU_ASSERT_EQUAL(e->state, LOAD_W_SERVING);
	end_test();
}

/* One round over all slots. */
static void run_alive_round(void)
{
	load.now += 15 * SECOND;
	n_sent = 0;
	for (uint32_t i = 0; i <= load.n_slots + load.n_engines; i++)
		load_alive_duty(&load);
}

static void engines_report_their_running_requests(void)
{
	const struct kvr_wire_hdr *h;
	struct dispatch d;

	BEGIN(PAIR);
	run_alive_round();
	CU_ASSERT_PTR_NULL(find_sent(KVR_ALIVE, 0));
	d = decode_leg(start_route(0, 0, 0), D_FIRST);
	add_worker(&d, P_BOOTSTRAP);
	add_room(&d, 41); /* no prefill leg has this room: the leg waits */
	deliver_dispatch(&d);
	for (uint32_t i = 0; i < 3; i++) {
		run_alive_round();
		h = find_sent(KVR_ALIVE, 0);
		CU_ASSERT_PTR_NOT_NULL_FATAL(h);
		CU_ASSERT_EQUAL(h->source, load.engines[D_FIRST].worker);
		CU_ASSERT_EQUAL(kvr_body_check(KVR_ALIVE, h + 1, h->msg_len, NULL), KVR_OK);
		CU_ASSERT_EQUAL(((const struct kvr_wire_alive *)(h + 1))->n, 1);
		CU_ASSERT_EQUAL(((const uint64_t *)(h + 1))[1], d.handle);
		CU_ASSERT_PTR_NULL(find_sent(KVR_ALIVE, 1));
	}
	load_engine_check(&load, d.slot); /* it has waited too long */
	run_alive_round();
	CU_ASSERT_PTR_NULL(find_sent(KVR_ALIVE, 0));
	end_test();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_prefill_leg_answers_one_item_with_its_result),
		KVR_CASE(a_decode_leg_waits_for_the_room_of_its_prefill_leg),
		KVR_CASE(a_decode_leg_without_its_prefill_leg_ends_with_an_error),
		KVR_CASE(a_result_is_verified_to_the_byte),
		KVR_CASE(a_result_before_the_end_of_the_prefill_is_an_error),
		KVR_CASE(each_error_in_a_leg_is_counted),
		KVR_CASE(a_leg_runs_once_however_often_it_is_dispatched),
		KVR_CASE(pieces_that_were_lost_are_asked_for),
		KVR_CASE(accepted_must_agree_with_the_engines),
		KVR_CASE(a_killed_engine_drops_its_requests_and_all_frames),
		KVR_CASE(answers_to_an_earlier_epoch_are_ignored),
		KVR_CASE(a_stale_epoch_is_replaced_by_the_next_one),
		KVR_CASE(engines_report_their_running_requests),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("load engines", tests);
}
