/* SPDX-License-Identifier: BSD-3-Clause */
#include "stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#define TURN_BYTES 262144u /* budget of batches per turn over all ranks, so that requests proceed  \
			    */
#define BATCH_COSTS  256u  /* least cost of a batch in this budget */
#define HOLD_BYTES   (1u << 20) /* events that wait for the router: stop reading above this ... */
#define RESUME_BYTES (1u << 18)
#define SLOW_US	     3000000 /* waiting is logged after this time */
#define REPLAY_US    3000000 /* without an answer */
#define SOON_US	     1000000 /* from a replay to the audit for batches that arrived meanwhile */
#define REPLAY_AGAIN 16u
#define AUDIT_SHIFT  6u /* an audit that is never answered is repeated up to 64 times less often */
#define MAX_FRAMES   8
#define REST_MOST    (4 * STREAM_BATCHES) /* more than a socket holds */
#define NONE	     UINT64_MAX

static uint64_t read_be64(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | p[i];
	return v;
}

/* ---- replay ---- */

/* Ask the replay socket for batches from `next` on. @return false: not possible. */
static bool ask_replay(struct app_stream *s, bool audit, uint64_t seen)
{
	uint8_t from[8];

	for (int i = 0; i < 8; i++)
		from[i] = (uint8_t)(s->next >> (56 - 8 * i));
	s->audit_us = s->app->now_us + s->app->o.audit_s * UINT64_C(1000000);
	if (s->dealer == NULL && s->app->o.replay[0] != '\0')
		app_stream_open_dealer(s); /* it could not be opened before */
	if (s->dealer == NULL || zmq_send(s->dealer, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
	    zmq_send(s->dealer, from, 8, ZMQ_DONTWAIT) < 0)
		return false;
	kvr_cell_add(&s->app->st.replays, 1);
	s->replaying = true;
	s->begun = false;
	s->again = 0;
	s->audit = audit;
	s->seen = seen;
	s->replay_us = s->app->now_us + REPLAY_US;
	return true;
}

static void drop_shown(struct app_stream *s)
{
	zmq_msg_close(&s->shown);
	zmq_msg_init(&s->shown);
}

/* The missing batches are not available: the rank holds the content of the batch that showed the
 * gap, and of later ones. */
static void go_on_without(struct app_stream *s, const char *why)
{
	app_stream_clean(s, why);
	s->fresh = false;
	s->next = s->floor = s->seen + 1;
	app_stream_apply(s, zmq_msg_data(&s->shown), zmq_msg_size(&s->shown));
	drop_shown(s);
}

/* Part of the answer was lost, because the engine's ROUTER drops messages above its limit: ask for
 * the rest. @return false: nothing arrived, or too many attempts. */
static bool ask_for_rest(struct app_stream *s)
{
	const uint32_t again = s->again + 1;

	if (!s->begun || again > REPLAY_AGAIN || !ask_replay(s, s->audit, s->seen))
		return false;
	s->again = again;
	return true;
}

/* Batches published during a replay wait in the sockets, and may be dropped there. If the engine
 * then publishes nothing, no gap shows that, so audit soon. */
static void end_replay(struct app_stream *s)
{
	s->replaying = false;
	if (s->begun && s->audit_us > s->app->now_us + SOON_US)
		s->audit_us = s->app->now_us + SOON_US;
	if (s->seen == NONE || s->next > s->seen)
		drop_shown(s); /* the replay included it */
	else if (!ask_for_rest(s))
		go_on_without(s, "the replay lacks the missing batches");
}

/* Open a new socket, so that late answers are not taken for those of the next question. */
static void close_question(struct app_stream *s)
{
	zmq_close(s->dealer);
	app_stream_open_dealer(s);
	s->replaying = false;
}

static void drop_replay(struct app_stream *s)
{
	close_question(s);
	end_replay(s);
}

/* Give up a replay. Batches wait for its answer, so unanswered audits become rare. */
static void give_up_replay(struct app_stream *s)
{
	const uint64_t audit_us = s->app->o.audit_s * UINT64_C(1000000);

	if (!s->begun && s->unanswered < AUDIT_SHIFT)
		s->unanswered++;
	if (app_is_news(s->app, &s->mute, "no answer"))
		app_log(s->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = s->app->o.replay),
			"rank %u: no answer from the replay socket; missed events are lost",
			s->dp_rank);
	drop_replay(s);
	if (!s->begun && !s->replaying)
		s->audit_us = s->app->now_us + (audit_us << s->unanswered);
}

static void reject_replay(struct app_stream *s)
{
	app_log(s->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"rank %u: unexpected answer from the replay socket %s", s->dp_rank,
		s->app->o.replay);
	app_stream_bad(s);
	drop_replay(s);
}

/* A replay continues from `next` without gaps. It may begin later, if the engine dropped batches,
 * but not after the batch that showed the gap. */
static bool is_answer(const struct app_stream *s, uint64_t number)
{
	return number == s->next ||
	       (number > s->next && !s->begun && (s->seen == NONE || number <= s->seen));
}

/* Handle one answer: [] [seq] [payload], or [] [topic] [seq] [payload]; number -1 ends the
 * replay. */
static void take_replay(struct app_stream *s, zmq_msg_t *frame, int n)
{
	const bool framed = n >= 3 && n <= 4 && zmq_msg_size(&frame[n - 2]) == 8;
	const uint64_t number = framed ? read_be64(zmq_msg_data(&frame[n - 2])) : 0;

	s->unanswered = 0;
	app_is_news(s->app, &s->mute, "");
	if (framed && number == NONE) {
		end_replay(s);
		return;
	}
	if (framed && s->begun && number > s->next) {
		drop_replay(s); /* some answers were dropped at the engine */
		return;
	}
	if (!framed || !is_answer(s, number)) {
		reject_replay(s);
		return;
	}
	if (number > s->next && s->seen == NONE && !s->fresh && s->behind != s->next) {
		s->behind = s->next;
		drop_replay(s); /* the missing batches may still arrive: decide at the next audit */
		return;
	}
	s->replay_us = s->app->now_us + REPLAY_US;
	if (number > s->next) {
		if (!s->fresh)
			app_stream_clean(s, "the replay begins after the missing batches");
		s->floor = number; /* earlier batches are not available */
	}
	kvr_cell_add(&s->app->st.replayed, 1);
	s->begun = true;
	s->fresh = false;
	s->next = number + 1;
	app_stream_apply(s, zmq_msg_data(&frame[n - 1]), zmq_msg_size(&frame[n - 1]));
}

/* ---- live ---- */

static void take_live(struct app_stream *s, zmq_msg_t *frame, int n)
{
	uint64_t number;

	if (n != 3 || zmq_msg_size(&frame[1]) != 8) {
		app_stream_bad(s);
		app_log(s->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"rank %u: a message of %d parts is not a batch", s->dp_rank, n);
		return;
	}
	number = read_be64(zmq_msg_data(&frame[1]));
	if (number < s->next && number >= s->floor)
		return; /* received by a replay */
	if (number < s->next) {
		kvr_cell_add(&s->app->st.regressions, 1);
		app_stream_renew(s, "the numbers of batches decreased");
		s->next = s->floor = 0;
		s->fresh = true;
	}
	if (s->fresh && s->app->o.replay[0] == '\0')
		s->next = number; /* earlier batches are unknown */
	if (number > s->next) {
		kvr_cell_add(&s->app->st.gaps, 1);
		if (ask_replay(s, false,
			       number)) { /* the replay includes this batch, if the engine has it */
			zmq_msg_move(&s->shown, &frame[2]);
			return;
		}
		app_stream_clean(s, "batches are missing and there is no replay socket");
	}
	s->fresh = false;
	s->next = s->floor = number + 1; /* batches of the last replay are now old */
	app_stream_apply(s, zmq_msg_data(&frame[2]), zmq_msg_size(&frame[2]));
}

/* ---- back-pressure ---- */

/* Return true if too many events wait for the router. */
static bool is_held(struct app_stream *s)
{
	struct app *a = s->app;
	const uint64_t waiting =
		a->agent != NULL ? kvr_agent_kv_waiting(a->agent, s->to->dp_rank) : 0;

	if (!s->held && waiting >= HOLD_BYTES) {
		s->held = true;
		s->held_us = a->now_us;
		kvr_cell_add(&a->st.events_held, 1);
		kvr_cell_add(&a->st.events_wait, 1);
	} else if (s->held && waiting < RESUME_BYTES) {
		s->held = false;
		s->replay_us =
			a->now_us + REPLAY_US; /* waiting does not count against the replay */
		kvr_cell_sub(&a->st.events_wait, 1);
		app_is_news(a, &s->slow, "");
	}
	if (s->held && a->now_us - s->held_us >= SLOW_US &&
	    app_is_news(a, &s->slow, "its events wait"))
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = a->o.router),
			"rank %u: events arrive faster than the router accepts them", s->dp_rank);
	return s->held;
}

/* Receive all parts of a message; surplus parts are dropped. @return their number; 0: none. */
static int receive_message(void *socket, zmq_msg_t frame[MAX_FRAMES])
{
	int n = 0, more = 1;

	while (more) {
		zmq_msg_t *f = &frame[n < MAX_FRAMES ? n : MAX_FRAMES - 1];

		if (n >= MAX_FRAMES)
			zmq_msg_close(f);
		zmq_msg_init(f);
		if (zmq_msg_recv(f, socket, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(f);
			break;
		}
		more = zmq_msg_more(f);
		n++;
	}
	return n;
}

static void release_message(zmq_msg_t frame[], int n)
{
	for (int i = 0; i < n && i < MAX_FRAMES; i++)
		zmq_msg_close(&frame[i]);
}

/* Drop messages of the previous connection. Some may be of the new engine; a replay repeats
 * these. */
static void drop_old(struct app_stream *s)
{
	zmq_msg_t frame[MAX_FRAMES];
	int n;

	for (unsigned int i = 0; i < REST_MOST && (n = receive_message(s->sub, frame)) > 0; i++)
		release_message(frame, n);
}

/* The connection to the engine is new: it may be another engine, which will not answer questions to
 * its predecessor. */
static void on_connected(struct app_stream *s)
{
	const bool first = s->fresh && s->next == 0;

	if (s->dealer != NULL && (!first || s->replaying)) {
		drop_old(s);
		close_question(s);
		drop_shown(s);
	}
	if (!first) {
		app_stream_renew(s, "the event connection was re-established");
		s->next = s->floor = 0;
		s->fresh = true;
	}
	ask_replay(s, true, NONE);
}

/* Cost of a message of @p n parts in the budget of a turn. */
static size_t message_cost(zmq_msg_t frame[], int n)
{
	return BATCH_COSTS + (n <= MAX_FRAMES ? zmq_msg_size(&frame[n - 1]) : 0);
}

/* Read messages until the router or the budget @p most stops it. @return true: everything was
 * read. */
static bool read_messages(struct app_stream *s, size_t most)
{
	zmq_msg_t frame[MAX_FRAMES];
	size_t taken = 0;
	int n;

	while (s->replaying && taken < most && !is_held(s) &&
	       (n = receive_message(s->dealer, frame)) > 0) {
		taken += message_cost(frame, n);
		take_replay(s, frame, n);
		release_message(frame, n);
	}
	if (s->replaying && taken == 0 && !s->held && s->app->now_us > s->replay_us)
		give_up_replay(s);
	while (!s->replaying && taken < most && !is_held(s) &&
	       (n = receive_message(s->sub, frame)) > 0) {
		taken += message_cost(frame, n);
		take_live(s, frame, n);
		release_message(frame, n);
	}
	if (taken >= most)
		s->app->more = true;
	return !s->replaying && taken < most && !s->held;
}

static void run_stream(struct app_stream *s, size_t most)
{
	zmq_msg_t frame[MAX_FRAMES];
	bool all;
	int n;

	while ((n = receive_message(s->monitor, frame)) > 0) {
		on_connected(s);
		release_message(frame, n);
	}
	all = read_messages(s, most);
	app_stream_clear_wakeups(s);
	if (all && s->app->o.replay[0] != '\0' && s->app->now_us > s->audit_us)
		ask_replay(s, true, NONE);
}

static bool is_open(const struct app *a)
{
	return a->streams != NULL && a->streams[0]->sub != NULL;
}

void app_streams_turn(struct app *a)
{
	for (uint32_t i = 0; is_open(a) && i < a->o.ranks; i++)
		run_stream(a->streams[i], TURN_BYTES / a->o.ranks);
}

void app_streams_resume(struct app *a)
{
	for (uint32_t i = 0; is_open(a) && i < a->o.ranks; i++)
		if (a->streams[i]->held && !is_held(a->streams[i]))
			a->more = true;
}

/* ---- start and stop ---- */

static struct app_stream *new_stream(struct app *a, uint32_t dp_rank, uint32_t blocks)
{
	struct app_stream *s = calloc(1, sizeof(*s));
	uint64_t seed = 0;

	if (s == NULL)
		return NULL;
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) < 0)
		seed = a->now_us;
	s->app = a;
	s->dp_rank = dp_rank;
	s->to = s;
	s->fresh = true;
	s->seen = s->behind = NONE;
	zmq_msg_init(&s->shown);
	s->audit_us = a->now_us + a->o.audit_s * UINT64_C(1000000);
	s->decoder = kvr_kvev_create(a->o.type == AGENT_SGLANG);
	s->map = app_stream_table(s, blocks, seed);
	return s;
}

int app_streams_start(struct app *a)
{
	uint64_t blocks = a->o.kv_blocks != 0 ? a->o.kv_blocks
			  : a->blocks != 0    ? 2 * a->blocks
					      : 1u << 20;

	if (blocks > 1u << 30)
		blocks = 1u << 30;
	a->streams = calloc(a->o.ranks, sizeof(a->streams[0]));
	if (a->streams == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < a->o.ranks; i++) {
		struct app_stream *s = new_stream(a, a->o.first_rank + i, (uint32_t)blocks);

		a->streams[i] = s;
		if (s == NULL || s->decoder == NULL || s->map == NULL)
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < a->o.ranks && a->o.events[0] != '\0'; i++) {
		const int rc = app_stream_open(a->streams[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

void app_streams_stop(struct app *a)
{
	for (uint32_t i = 0; a->streams != NULL && i < a->o.ranks; i++) {
		struct app_stream *s = a->streams[i];

		if (s == NULL)
			continue;
		if (s->held)
			kvr_cell_sub(&a->st.events_wait, 1);
		app_stream_close(s);
		zmq_msg_close(&s->shown);
		kvr_kvev_destroy(s->decoder);
		kvr_kvmap_destroy(s->map);
		free(s);
	}
	free(a->streams);
	a->streams = NULL;
}
