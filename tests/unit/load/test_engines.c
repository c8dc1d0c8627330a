/* SPDX-License-Identifier: BSD-3-Clause */
/* What simulated engines do and notice: legs, deaths. */
#include "rig.h"

/* ---- legs ---- */

static void a_prefill_leg_answers_one_item_with_its_result(void)
{
	struct load_transfer want;
	struct dispatch d;

	BEGIN(PAIR);
	d = prefill(route(0, 0, 0), P_SYNC, 1);
	deliver(&d);
	CU_ASSERT_PTR_NOT_NULL_FATAL(item(0));
	CU_ASSERT_EQUAL(item(0)->flags, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(item(0)->generated_tokens, 1);
	CU_ASSERT_PTR_NULL(item(1));
	CU_ASSERT_EQUAL(find(KVR_RESPONSE, 0)->handle, 77);
	want = load_pair_result(&load, d.slot);
	CU_ASSERT_TRUE(load_transfer_is(item(0) + 1, item(0)->data_len, &want));
	CU_ASSERT_EQUAL(want.worker, load.engines[P_SYNC].worker);
	CU_ASSERT_EQUAL(want.dp_rank, 1);
	CU_ASSERT_EQUAL(violations(), 0);
	end();
}

static void a_decode_leg_waits_for_the_room_of_its_prefill_leg(void)
{
	struct dispatch p, d;

	BEGIN(PAIR);
	d = decode(route(0, 0, 0), D_FIRST);
	add_worker(&d, P_BOOTSTRAP);
	add_room(&d, 41);
	deliver(&d);
	CU_ASSERT_PTR_NULL(item(0));
	CU_ASSERT_PTR_NOT_NULL(find(KVR_DISPATCH_ACK, 0));
	p = prefill(d.slot, P_BOOTSTRAP, 1);
	add_room(&p, 41);
	deliver(&p);
	CU_ASSERT_PTR_NOT_NULL_FATAL(item(2)); /* the result, and two items of the answer */
	CU_ASSERT_EQUAL(item(2)->flags, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(count(LOAD_TRANSFERS), 1);
	CU_ASSERT_EQUAL(violations(), 0);
	end();
}

static void a_decode_leg_that_waits_in_vain_ends_with_an_error(void)
{
	struct dispatch p, d;

	BEGIN(PAIR);
	d = decode(route(0, 0, 0), D_FIRST);
	add_worker(&d, P_BOOTSTRAP);
	add_room(&d, 41);
	deliver(&d);
	p = prefill(d.slot, P_BOOTSTRAP, 1);
	add_room(&p, 43); /* of the right rank, but another room */
	deliver(&p);
	load.now += 4 * SECOND;
	load_engine_check(&load, d.slot);
	CU_ASSERT_EQUAL(count(LOAD_TRANSFER_TIMEOUTS), 0);
	load.now += 2 * SECOND;
	n_sent = 0;
	load_engine_check(&load, d.slot);
	CU_ASSERT_EQUAL(count(LOAD_TRANSFER_TIMEOUTS), 1);
	CU_ASSERT_EQUAL(count(LOAD_V_ROOM), 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(item(1)); /* behind that of the prefill leg, again */
	CU_ASSERT_EQUAL(item(1)->flags, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
	CU_ASSERT_EQUAL(item(1)->data_len, 0);
	end();
}

static void a_result_is_verified_to_the_byte(void)
{
	struct load_transfer t;
	struct dispatch p, d;

	for (uint32_t bad = 0; bad < 4; bad++) {
		BEGIN(PAIR);
		p = prefill(route(0, 0, 0), P_SYNC, 0);
		deliver(&p);
		t = load_pair_result(&load, p.slot);
		t.n_blocks ^= bad == 1;
		d = decode(p.slot, D_SECOND);
		add_worker(&d, bad == 3 ? P_BOOTSTRAP : P_SYNC);
		if (bad != 2)
			kvr_hint_put(hints(&d), KVR_HINT_PREFILL_RESULT, &t, sizeof(t), NULL, 0);
		deliver(&d);
		CU_ASSERT_EQUAL(count(LOAD_TRANSFERS), bad == 0);
		CU_ASSERT_EQUAL(count(LOAD_V_RESULT), bad != 0);
		CU_ASSERT_PTR_NOT_NULL(item(2)); /* it goes on either way */
		end();
	}
}

static void a_result_cannot_come_before_the_prefill_has_ended(void)
{
	struct load_transfer t;
	struct dispatch p, d;

	BEGIN((char *)"--disagg", (char *)"2:2");
	p = prefill(route(0, 0, 0), P_SYNC, 0);
	for (uint32_t run = 0; run < 2; run++) {
		deliver(&p);
		t = load_pair_result(&load, p.slot);
		d = decode(p.slot, D_FIRST);
		d.handle += run;
		add_worker(&d, P_SYNC);
		kvr_hint_put(hints(&d), KVR_HINT_PREFILL_RESULT, &t, sizeof(t), NULL, 0);
		deliver(&d);
		CU_ASSERT_EQUAL(count(LOAD_V_RESULT), 1 + run);
		load_engine_timers(&load); /* the prefill ends */
		CU_ASSERT_TRUE(load.pairs[p.slot].finished);
		p.handle += 10; /* and begins anew */
	}
	end();
}

static void whatever_is_wrong_in_a_leg_is_noticed(void)
{
	static const enum load_counter noticed[] = {
		LOAD_V_MAX_TOKENS, LOAD_V_MAX_TOKENS, LOAD_V_FLAGS,  LOAD_V_FLAGS, LOAD_V_ROOM,
		LOAD_V_HINTS,	   LOAD_V_HINTS,      LOAD_V_WORKER, LOAD_V_FLAGS};

	for (uint32_t bad = 0; bad < RTE_DIM(noticed); bad++) {
		struct dispatch p, d;

		BEGIN(PAIR);
		p = prefill(route(0, 0, 0), P_BOOTSTRAP, bad == 4 ? 0 : 1);
		d = decode(p.slot, D_FIRST);
		p.max_tokens += bad == 0;
		d.max_tokens -= bad == 1;
		p.flags |= bad == 2 ? KVR_REQ_F_DIRECT : 0;
		if (bad == 3) { /* served alone, it seems, and yet a leg */
			d.flags |= KVR_REQ_F_PREFILL_LEG;
			d.phase = KVR_ROLE_AGGREGATED;
		}
		d.phase = bad == 8 ? KVR_ROLE_AGGREGATED : d.phase;
		if (bad != 5)
			add_room(&p, 41);
		add_worker(&d, bad == 7 ? D_SECOND : P_BOOTSTRAP);
		kvr_hint_put_bootstrap(
			hints(&d), 41,
			(uint16_t)(load_bootstrap_port(&load, P_BOOTSTRAP) + (bad == 6)), opt.ip);
		deliver(&p);
		deliver(&d);
		CU_ASSERT_EQUAL(count(noticed[bad]), 1);
		CU_ASSERT_EQUAL(violations(), 1);
		end();
	}
}

static void a_leg_runs_once_however_often_it_is_dispatched(void)
{
	struct kvr_wire_response_ack ack = {1, KVR_RACK_F_FIN};
	struct kvr_wire_ids ids;
	uint8_t frame[64];
	struct dispatch p;

	BEGIN(PAIR);
	p = prefill(route(0, 0, 0), P_SYNC, 0);
	deliver(&p);
	deliver(&p);
	CU_ASSERT_PTR_NULL(item(1));
	ids = (struct kvr_wire_ids){load.clients[load.slots[p.slot].client].source,
				    load.slots[p.slot].id, 77, 1, 1};
	kvr_put_response_ack(frame, sizeof(frame), &ids, &ack);
	load_engine_frame(&load, (const struct kvr_wire_hdr *)frame, P_BOOTSTRAP);
	CU_ASSERT_EQUAL(load.pairs[p.slot].prefill.estate, LOAD_E_SENT); /* not its engine */
	load_engine_frame(&load, (const struct kvr_wire_hdr *)frame, P_SYNC);
	CU_ASSERT_EQUAL(load.pairs[p.slot].prefill.estate, LOAD_E_IDLE);
	deliver(&p);
	CU_ASSERT_PTR_NULL(item(1));
	CU_ASSERT_PTR_NOT_NULL(find(KVR_DISPATCH_ACK, 1));
	p.handle++; /* another leg: the request was routed again */
	deliver(&p);
	CU_ASSERT_PTR_NOT_NULL(item(1));
	end();
}

static void pieces_that_were_lost_are_asked_for(void)
{
	const struct kvr_wire_missing *m;
	struct dispatch p;
	uint64_t word;
	uint32_t n;

	BEGIN(PAIR);
	p = prefill(route(0, 3, 0), P_BOOTSTRAP, 0);
	add_room(&p, 40);
	p.lost = 1 << 2;
	deliver(&p);
	CU_ASSERT_PTR_NULL(find(KVR_MISSING, 0));
	CU_ASSERT_PTR_NULL(find(KVR_RESPONSE, 0));
	p.lost = ~UINT64_C(1); /* the first piece comes again */
	deliver(&p);
	CU_ASSERT_PTR_NOT_NULL_FATAL(find(KVR_MISSING, 0));
	m = kvr_frame_body(find(KVR_MISSING, 0));
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
	deliver(&p);
	CU_ASSERT_PTR_NOT_NULL(find(KVR_RESPONSE, 0));
	CU_ASSERT_EQUAL(count(LOAD_PREFILL_LEGS), 1);
	CU_ASSERT_EQUAL(violations(), 0);
	end();
}

static void the_client_must_be_told_what_the_engines_saw(void)
{
	for (uint32_t bad = 0; bad < 6; bad++) {
		struct dispatch p, d;
		struct kvr_wire_accepted a;

		BEGIN(PAIR);
		p = prefill(route(0, 0, 0), P_BOOTSTRAP, 1);
		add_room(&p, 41);
		d = decode(p.slot, D_FIRST);
		add_worker(&d, P_BOOTSTRAP);
		add_room(&d, 41);
		deliver(&p);
		deliver(&d);
		a = (struct kvr_wire_accepted){
			.worker = load.engines[bad == 1 ? D_SECOND : D_FIRST].worker,
			.state = KVR_STATE_DISPATCHED,
			.prefill_worker = load.engines[bad == 2 ? P_SYNC : P_BOOTSTRAP].worker,
			.prefill_dp_rank = bad == 3 ? 0 : 1,
			.prefill_overlap_blocks = bad == 5 ? 1 : 0,
			.path = bad == 4 ? KVR_WAY_SYNC : KVR_WAY_BOOTSTRAP};
		conclude(p.slot, a);
		CU_ASSERT_EQUAL(count(LOAD_COMPLETED), 1);
		CU_ASSERT_EQUAL(count(LOAD_V_ACCEPTED), bad != 0);
		CU_ASSERT_EQUAL(count(bad == 4 ? LOAD_PATH_SYNC : LOAD_PATH_BOOTSTRAP), 1);
		end();
	}
}

/* ---- deaths ---- */

static void a_killed_engine_forgets_all_and_hears_nothing(void)
{
	struct kvr_wire_hdr h = {.kind = KVR_DISPATCH};
	struct dispatch p;

	BEGIN((char *)"--disagg", (char *)"1:1", (char *)"--kill-every", (char *)"1",
	      (char *)"--kill-mode", (char *)"silent");
	load.engines[1].state = LOAD_W_DEAD; /* leaves one to be chosen */
	p = prefill(route(0, 0, 0), 0, 0);
	add_room(&p, 40);
	deliver(&p);
	CU_ASSERT_EQUAL(load.pairs[p.slot].prefill.estate, LOAD_E_PREFILL);
	load_kill_duty(&load);
	CU_ASSERT_EQUAL(load.engines[0].state, LOAD_W_DEAD);
	CU_ASSERT_EQUAL(load.pairs[p.slot].prefill.estate, LOAD_E_IDLE);
	CU_ASSERT_EQUAL(engine_running(&load.ranks[0].model), 0);
	CU_ASSERT_EQUAL(count(LOAD_KILLED_REQUESTS), 1);
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
	end();
}

/* What the router answers to a HELLO or GOODBYE of the life @life. */
static void answered(uint8_t kind, uint32_t life)
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

static void answers_to_a_life_before_do_not_end_the_present_one(void)
{
	struct load_engine *e;
	uint32_t life;

	BEGIN((char *)"--disagg", (char *)"1:1", (char *)"--kill-every", (char *)"1");
	e = &load.engines[0];
	for (uint32_t i = 0; i < load.n_clients; i++)
		load.clients[i].connected = true;
	load.engines[1].state = LOAD_W_GONE; /* leaves one to be chosen */
	load_kill_duty(&load);
	life = e->epoch;
	duty_at(load.now); /* GOODBYE, and its copy */
	duty_at(load.now + SECOND / 10);
	CU_ASSERT_EQUAL(e->state, LOAD_W_DYING);
	duty_at(e->revive_at);
	CU_ASSERT_EQUAL(e->state, LOAD_W_HELLO);
	CU_ASSERT_EQUAL(e->epoch, life + 1);
	answered(KVR_WELCOME, life);
	CU_ASSERT_EQUAL(e->state, LOAD_W_HELLO);
	answered(KVR_GOODBYE_ACK, life);
	CU_ASSERT_EQUAL(e->state, LOAD_W_HELLO);
	answered(KVR_WELCOME, life + 1);
	CU_ASSERT_EQUAL(e->state, LOAD_W_SERVING);
	CU_ASSERT_FALSE(e->unwelcomed);
	answered(KVR_GOODBYE_ACK, life);
	CU_ASSERT_EQUAL(e->state, LOAD_W_SERVING);
	load.now = load.next_kill;
	load_kill_duty(&load);
	answered(KVR_GOODBYE_ACK, life);
	CU_ASSERT_EQUAL(e->state, LOAD_W_DYING); /* the router must hear of this one, too */
	answered(KVR_GOODBYE_ACK, life + 1);
	CU_ASSERT_EQUAL(e->state, LOAD_W_DEAD);
	end();
}

/* A run before this one has had the epoch: the engine takes one above, once, whatever is repeated.
 */
static void a_stale_epoch_is_left_behind(void)
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
	load_registration_frame(&load, &f.h); /* names none */
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
	answered(KVR_WELCOME, life + 8);
	CU_ASSERT_EQUAL(e->state, LOAD_W_SERVING);
	end();
}

/* One round of looks. */
static void round_of_reports(void)
{
	load.now += 15 * SECOND;
	n_sent = 0;
	for (uint32_t i = 0; i <= load.n_slots + load.n_engines; i++)
		load_alive_duty(&load);
}

static void engines_report_what_they_run(void)
{
	const struct kvr_wire_hdr *h;
	struct dispatch d;

	BEGIN(PAIR);
	round_of_reports();
	CU_ASSERT_PTR_NULL(find(KVR_ALIVE, 0));
	d = decode(route(0, 0, 0), D_FIRST);
	add_worker(&d, P_BOOTSTRAP);
	add_room(&d, 41); /* nobody comes to it: the leg waits */
	deliver(&d);
	for (uint32_t i = 0; i < 3; i++) {
		round_of_reports();
		h = find(KVR_ALIVE, 0);
		CU_ASSERT_PTR_NOT_NULL_FATAL(h);
		CU_ASSERT_EQUAL(h->source, load.engines[D_FIRST].worker);
		CU_ASSERT_EQUAL(kvr_body_check(KVR_ALIVE, h + 1, h->msg_len, NULL), KVR_OK);
		CU_ASSERT_EQUAL(((const struct kvr_wire_alive *)(h + 1))->n, 1);
		CU_ASSERT_EQUAL(((const uint64_t *)(h + 1))[1], d.handle);
		CU_ASSERT_PTR_NULL(find(KVR_ALIVE, 1));
	}
	load_engine_check(&load, d.slot); /* it has waited for too long */
	round_of_reports();
	CU_ASSERT_PTR_NULL(find(KVR_ALIVE, 0));
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"a_prefill_leg_answers_one_item_with_its_result",
		 a_prefill_leg_answers_one_item_with_its_result},
		{"a_decode_leg_waits_for_the_room_of_its_prefill_leg",
		 a_decode_leg_waits_for_the_room_of_its_prefill_leg},
		{"a_decode_leg_that_waits_in_vain_ends_with_an_error",
		 a_decode_leg_that_waits_in_vain_ends_with_an_error},
		{"a_result_is_verified_to_the_byte", a_result_is_verified_to_the_byte},
		{"a_result_cannot_come_before_the_prefill_has_ended",
		 a_result_cannot_come_before_the_prefill_has_ended},
		{"whatever_is_wrong_in_a_leg_is_noticed", whatever_is_wrong_in_a_leg_is_noticed},
		{"a_leg_runs_once_however_often_it_is_dispatched",
		 a_leg_runs_once_however_often_it_is_dispatched},
		{"pieces_that_were_lost_are_asked_for", pieces_that_were_lost_are_asked_for},
		{"the_client_must_be_told_what_the_engines_saw",
		 the_client_must_be_told_what_the_engines_saw},
		{"a_killed_engine_forgets_all_and_hears_nothing",
		 a_killed_engine_forgets_all_and_hears_nothing},
		{"answers_to_a_life_before_do_not_end_the_present_one",
		 answers_to_a_life_before_do_not_end_the_present_one},
		{"a_stale_epoch_is_left_behind", a_stale_epoch_is_left_behind},
		{"engines_report_what_they_run", engines_report_what_they_run},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("load engines", tests);
}
