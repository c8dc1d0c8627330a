/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_rig.h"

#include "kvr_rand.h"
#include <rte_common.h>

static struct {
	int n, status;
	uint16_t code;
	char session[260];
	bool again; /* release again from inside the callback */
} told;

static void on_released(struct kvr_client *cl, const char *session, int status, uint16_t code,
			void *user)
{
	const struct kvr_client_release next = {.session = "next", .on_released = on_released};

	CU_ASSERT_PTR_EQUAL(user, &told);
	told.n++;
	told.status = status;
	told.code = code;
	snprintf(told.session, sizeof(told.session), "%s", session);
	if (told.again) {
		struct kvr_client_release r = next;

		told.again = false;
		r.user = &told;
		CU_ASSERT_EQUAL(kvr_client_release(cl, &r), 0);
	}
}

static int start_release(const char *session, uint16_t pool)
{
	const struct kvr_client_release r = {
		.pool = pool, .session = session, .on_released = on_released, .user = &told};

	return kvr_client_release(c, &r);
}

static void start_client(void)
{
	memset(&told, 0, sizeof(told));
	rig_start();
}

static void push_released(uint64_t id, uint16_t code)
{
	const struct kvr_wire_ids ids = ids_of(id, 0);

	fake_push(&net, router_at,
		  kvr_put_session_status(fake_slot(&net), 1984, KVR_SESSION_RELEASED, &ids, code));
}

/* Header of the next SESSION_RELEASE sent. */
static const struct kvr_wire_hdr *next_release(void)
{
	return fake_next(&net, KVR_SESSION_RELEASE);
}

static void release_carries_the_session_until_answered(void)
{
	const struct kvr_wire_session *w;
	const struct kvr_wire_hdr *h;
	uint32_t seq;

	start_client();
	CU_ASSERT_EQUAL(start_release("chat-1", 9), 0);
	CU_ASSERT_EQUAL(net.n_out, 0); /* the call itself sends nothing */
	CU_ASSERT_EQUAL(kvr_client_timeout_ms(c), 0);
	kvr_client_process(c);
	h = next_release();
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &router_at));
	CU_ASSERT(h->source == SOURCE && h->handle == 0);
	CU_ASSERT_EQUAL(kvr_body_check(h->kind, kvr_frame_body(h), h->msg_len, NULL), 0);
	w = kvr_frame_body(h);
	CU_ASSERT(w->pool == 9 && w->id_len == 6 && w->timeout_s == 0);
	CU_ASSERT_EQUAL(memcmp(w + 1, "chat-1", 6), 0);
	seq = h->msg_seq;
	rig_run_ms(19);
	CU_ASSERT_PTR_NULL(next_release());
	rig_run_ms(1);
	h = next_release();
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(h->msg_seq, seq); /* the same bytes */
	rig_run_ms(40);
	CU_ASSERT_PTR_NOT_NULL(next_release());
	push_released(h->id, 0);
	push_released(h->id, KVR_E_UNKNOWN_SESSION); /* from a copy: the first answer counts */
	kvr_client_process(c);
	CU_ASSERT(told.n == 1 && told.status == 0 && told.code == 0);
	CU_ASSERT_STRING_EQUAL(told.session, "chat-1");
	fake_skip(&net);
	rig_run_ms(6000);
	CU_ASSERT_EQUAL(net.n_out, 0);
	rig_stop();
	CU_ASSERT_EQUAL(told.n, 1);
}

static void every_outcome_is_reported_once(void)
{
	uint64_t id;

	start_client();
	CU_ASSERT_EQUAL(start_release("a", 0), 0);
	kvr_client_process(c);
	push_released(next_release()->id, KVR_E_UNKNOWN_SESSION);
	kvr_client_process(c);
	CU_ASSERT(told.n == 1 && told.status == -ENOENT && told.code == KVR_E_UNKNOWN_SESSION);
	CU_ASSERT_EQUAL(start_release("a", 77), 0);
	kvr_client_process(c);
	id = next_release()->id;
	push_rejected(id, KVR_E_BUSY, KVR_SESSION_RELEASE, ""); /* temporary */
	kvr_client_process(c);
	CU_ASSERT_EQUAL(told.n, 1);
	push_rejected(id, KVR_E_UNKNOWN_POOL, KVR_SESSION_RELEASE, "");
	push_rejected(id, KVR_E_UNKNOWN_POOL, KVR_SESSION_RELEASE, "");
	kvr_client_process(c);
	CU_ASSERT(told.n == 2 && told.status == -EACCES && told.code == KVR_E_UNKNOWN_POOL);
	CU_ASSERT_EQUAL(start_release("a", 78), 0); /* a pool without sessions */
	kvr_client_process(c);
	push_rejected(next_release()->id, KVR_E_UNKNOWN_SESSION, KVR_SESSION_RELEASE, "");
	kvr_client_process(c);
	CU_ASSERT(told.n == 3 && told.status == -ENOENT);
	fake_skip(&net);
	CU_ASSERT_EQUAL(start_release("silence", 0), 0);
	rig_run_ms(4999);
	CU_ASSERT_EQUAL(told.n, 3);
	rig_run_ms(1);
	CU_ASSERT(told.n == 4 && told.status == -ETIMEDOUT);
	/* 0, 20, 60, 140, 300, 620, 1260, 2260, 3260, 4260 ms */
	CU_ASSERT_EQUAL(fake_count(&net, KVR_SESSION_RELEASE), 10);
	CU_ASSERT_EQUAL(start_release("left", 0), 0);
	rig_stop();
	CU_ASSERT(told.n == 5 && told.status == -ECANCELED);
	CU_ASSERT_STRING_EQUAL(told.session, "left");
}

static void invalid_releases_are_errors(void)
{
	const struct kvr_client_release named = {.pool_name = "llama", .session = "a"};
	static char longest[258];

	start_client();
	memset(longest, 'x', 257);
	CU_ASSERT_EQUAL(start_release(NULL, 0), -EINVAL);
	CU_ASSERT_EQUAL(start_release("", 0), -EINVAL);
	CU_ASSERT_EQUAL(start_release("a\x01", 0), -EINVAL);
	CU_ASSERT_EQUAL(start_release(longest, 0), -EMSGSIZE);
	CU_ASSERT_EQUAL(kvr_client_release(c, &named), -ENOTCONN);
	kvr_client_connect(c);
	kvr_client_process(c);
	push_connected(fake_next(&net, KVR_CONNECT)->id, 77);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(kvr_client_release(c, &named), 0); /* no callback */
	CU_ASSERT_EQUAL(kvr_client_release(c, &(struct kvr_client_release){.pool_name = "gpt",
									   .session = "a"}),
			-ENOENT);
	longest[256] = '\0';
	for (uint32_t i = 1; i < CLIENT_RELEASES; i++)
		CU_ASSERT_EQUAL(start_release(longest, 0), 0);
	CU_ASSERT_EQUAL(start_release("a", 0), -EBUSY);
	kvr_client_process(c);
	push_released(next_release()->id, 0);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(start_release("a", 0), 0);
	rig_stop();
	CU_ASSERT_EQUAL(told.n, (int)CLIENT_RELEASES);
}

static void releases_and_requests_do_not_mix(void)
{
	uint64_t id;

	start_client();
	id = rig_submit(0);
	told.again = true;
	CU_ASSERT_EQUAL(start_release("a", 0), 0);
	kvr_client_process(c);
	push_released(id, 0); /* does not answer a release */
	push_rejected(id, KVR_E_UNKNOWN_POOL, KVR_SESSION_RELEASE, "");
	kvr_client_process(c);
	CU_ASSERT(told.n == 0 && saw.ends == 0);
	push_released(next_release()->id, 0);
	kvr_client_process(c);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(told.n, 1);
	push_released(next_release()->id, 0); /* by the release inside the callback */
	kvr_client_process(c);
	CU_ASSERT_EQUAL(told.n, 2);
	CU_ASSERT_STRING_EQUAL(told.session, "next");
	CU_ASSERT_EQUAL(saw.ends, 0);
	rig_stop();
}

/* Answers are lost, repeated and late; every release is reported once. */
static void losses_and_copies_end_each_release_once(void)
{
	uint64_t asked[64];
	struct kvr_rand rnd;
	int expected = 0;

	start_client();
	kvr_rand_init(&rnd, 9);
	for (uint32_t round = 0; round < 200; round++) {
		uint32_t n = 0;

		for (uint32_t i = kvr_rand_below(&rnd, 5); i-- > 0; expected++)
			CU_ASSERT_EQUAL(start_release("s", (uint16_t)round), 0);
		rig_run_ms(30);
		for (const struct kvr_wire_hdr *h; n < 64 && (h = next_release()) != NULL;)
			asked[n++] = h->id;
		for (uint32_t i = 0; i < n; i++)
			for (uint32_t copies = kvr_rand_below(&rnd, 3); copies-- > 0;)
				push_released(asked[kvr_rand_below(&rnd, n)],
					      kvr_rand_below(&rnd, 2) ? 0 : KVR_E_UNKNOWN_SESSION);
		fake_skip(&net);
	}
	rig_run_ms(5000);
	CU_ASSERT_EQUAL(told.n, expected);
	rig_stop();
	CU_ASSERT_EQUAL(told.n, expected);
}

/* Wire format of the hint; 0 selects the default. */
static void session_hints_carry_action_and_timeout(void)
{
	static const struct {
		enum kvr_client_session action;
		uint32_t timeout_s, wire_s;
	} rows[] = {{KVR_CLIENT_SESSION_USE, 0, 300},
		    {KVR_CLIENT_SESSION_OPEN, 1, 1},
		    {KVR_CLIENT_SESSION_OPEN, 31536000, 31536000},
		    {KVR_CLIENT_SESSION_CLOSE, 0, 300}};

	for (uint32_t i = 0; i < RTE_DIM(rows); i++) {
		struct kvr_client_hints *hints = kvr_client_hints_create();
		const struct kvr_client_request q = {
			.tokens = prompt, .n_tokens = 4, .hints = hints, .ops = &rig_ops};
		struct kvr_message r;
		struct kvr_hint_lists lists;
		struct kvr_hints h;
		const struct kvr_wire_hdr *f;
		uint64_t id;

		start_client();
		CU_ASSERT_EQUAL(
			kvr_client_hint_session(hints, "chat", rows[i].action, rows[i].timeout_s),
			0);
		CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
		kvr_client_process(c);
		f = fake_next(&net, KVR_ROUTE);
		CU_ASSERT_PTR_NOT_NULL_FATAL(f);
		CU_ASSERT_EQUAL(kvr_request_parse(kvr_frame_body(f), f->msg_len, KVR_ROUTE, &r), 0);
		CU_ASSERT_EQUAL(
			kvr_hints_parse(r.hints, r.fixed.hints_len, KVR_HINTS_ROUTE, &h, &lists),
			0);
		CU_ASSERT_EQUAL(h.session.action, rows[i].action);
		CU_ASSERT_EQUAL(h.session.timeout_s, rows[i].wire_s);
		CU_ASSERT_EQUAL(memcmp(h.session.id.p, "chat", 4), 0);
		kvr_client_hints_destroy(hints);
		rig_stop();
	}
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(release_carries_the_session_until_answered),
		KVR_CASE(every_outcome_is_reported_once),
		KVR_CASE(invalid_releases_are_errors),
		KVR_CASE(releases_and_requests_do_not_mix),
		KVR_CASE(losses_and_copies_end_each_release_once),
		KVR_CASE(session_hints_carry_action_and_timeout),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("client_session", tests);
}
