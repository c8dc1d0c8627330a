/* SPDX-License-Identifier: BSD-3-Clause */
#include "stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#define TURN_BYTES   262144u	/* of batches of all ranks, before requests have their turn */
#define BATCH_COSTS  256u	/* that the smallest batch counts for */
#define HOLD_BYTES   (1u << 20) /* of events that wait for the router: no more of them now */
#define RESUME_BYTES (1u << 18)
#define SLOW_US	     3000000 /* that they wait is said after so long */
#define REPLAY_US    3000000 /* of silence */
#define SOON_US	     1000000 /* from what a replay has brought to a look for what came meanwhile */
#define REPLAY_AGAIN 16u
#define AUDIT_SHIFT  6u /* an audit that is never answered comes 64 times as seldom in the end */
#define MAX_FRAMES   8
#define REST_MOST    (4 * STREAM_BATCHES) /* more than a socket holds */
#define NONE	     UINT64_MAX

static uint64_t be64(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | p[i];
	return v;
}

/* ---- replay ---- */

/* @return false: there is no way to ask. */
static bool ask_replay(struct app_stream *s, bool audit, uint64_t seen)
{
	uint8_t from[8];

	for (int i = 0; i < 8; i++)
		from[i] = (uint8_t)(s->next >> (56 - 8 * i));
	s->audit_us = s->app->now_us + s->app->o.audit_s * UINT64_C(1000000);
	if (s->dealer == NULL && s->app->o.replay[0] != '\0')
		app_stream_open_dealer(s); /* it could not be had the last time */
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

/* What is missing cannot be had: the rank holds what the batch that has shown it tells, and what
 * comes behind. */
static void go_on_without(struct app_stream *s, const char *why)
{
	app_stream_clean(s, why);
	s->fresh = false;
	s->next = s->floor = s->seen + 1;
	app_stream_apply(s, zmq_msg_data(&s->shown), zmq_msg_size(&s->shown));
	drop_shown(s);
}

/* Some of an answer were lost: its ROUTER drops what has no room. What has come has come, and the
 * rest is asked for. @return false: nothing has, or it was asked for too often. */
static bool ask_again(struct app_stream *s)
{
	const uint32_t again = s->again + 1;

	if (!s->begun || again > REPLAY_AGAIN || !ask_replay(s, s->audit, s->seen))
		return false;
	s->again = again;
	return true;
}

/* What the engine says meanwhile waits in its socket and in ours, and may be dropped there: if it
 * is silent then, no gap tells. */
static void end_replay(struct app_stream *s)
{
	s->replaying = false;
	if (s->begun && s->audit_us > s->app->now_us + SOON_US)
		s->audit_us = s->app->now_us + SOON_US;
	if (s->seen == NONE || s->next > s->seen)
		drop_shown(s); /* it has come once more */
	else if (!ask_again(s))
		go_on_without(s, "the replay has not what is missing");
}

/* Late answers must not be taken for those of the next question. */
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

/* Batches wait for an answer: where there never is one they had better not, as often as not. */
static void give_up_replay(struct app_stream *s)
{
	const uint64_t audit_us = s->app->o.audit_s * UINT64_C(1000000);

	if (!s->begun && s->unanswered < AUDIT_SHIFT)
		s->unanswered++;
	if (app_is_news(s->app, &s->mute, "no answer"))
		app_log(s->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = s->app->o.replay),
			"rank %u: no answer from the replay socket: events that are missed are "
			"lost",
			s->dp_rank);
	drop_replay(s);
	if (!s->begun && !s->replaying)
		s->audit_us = s->app->now_us + (audit_us << s->unanswered);
}

static void disbelieve_replay(struct app_stream *s)
{
	app_log(s->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"rank %u: the replay socket %s answers what was not asked for", s->dp_rank,
		s->app->o.replay);
	app_stream_bad(s);
	drop_replay(s);
}

/* A replay goes on from `next` without gaps. It may begin later, when its engine has no more, but
 * not behind the batch that showed what is missing: that one has come by itself. */
static bool is_answer(const struct app_stream *s, uint64_t number)
{
	return number == s->next ||
	       (number > s->next && !s->begun && (s->seen == NONE || number <= s->seen));
}

/* One answer: [] [seq] [payload], or [] [topic] [seq] [payload]; the number -1 ends it. */
static void take_replay(struct app_stream *s, zmq_msg_t *frame, int n)
{
	const bool framed = n >= 3 && n <= 4 && zmq_msg_size(&frame[n - 2]) == 8;
	const uint64_t number = framed ? be64(zmq_msg_data(&frame[n - 2])) : 0;

	s->unanswered = 0;
	app_is_news(s->app, &s->mute, "");
	if (framed && number == NONE) {
		end_replay(s);
		return;
	}
	if (framed && s->begun && number > s->next) {
		drop_replay(s); /* not all had room there */
		return;
	}
	if (!framed || !is_answer(s, number)) {
		disbelieve_replay(s);
		return;
	}
	if (number > s->next && s->seen == NONE && !s->fresh && s->behind != s->next) {
		s->behind = s->next;
		drop_replay(
			s); /* what is missing may still be on its way here: until the next look */
		return;
	}
	s->replay_us = s->app->now_us + REPLAY_US;
	if (number > s->next) {
		if (!s->fresh)
			app_stream_clean(s, "the replay begins behind what is missing");
		s->floor = number; /* it has not those before */
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
			"rank %u: a message of %d parts that is no batch", s->dp_rank, n);
		return;
	}
	number = be64(zmq_msg_data(&frame[1]));
	if (number < s->next && number >= s->floor)
		return; /* a replay had it */
	if (number < s->next) {
		kvr_cell_add(&s->app->st.regressions, 1);
		app_stream_renew(s, "the numbers of its batches went back");
		s->next = s->floor = 0;
		s->fresh = true;
	}
	if (s->fresh && s->app->o.replay[0] == '\0')
		s->next = number; /* what was before it, nobody tells */
	if (number > s->next) {
		kvr_cell_add(&s->app->st.gaps, 1);
		if (ask_replay(s, false, number)) { /* it has this one, too, when it has any */
			zmq_msg_move(&s->shown, &frame[2]);
			return;
		}
		app_stream_clean(s, "batches are missing and there is no replay socket");
	}
	s->fresh = false;
	s->next = s->floor = number + 1; /* what a replay had is behind us */
	app_stream_apply(s, zmq_msg_data(&frame[2]), zmq_msg_size(&frame[2]));
}

/* ---- held back ---- */

/* Whether there are too many events already that the router has not taken. */
static bool holds(struct app_stream *s)
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
		s->replay_us = a->now_us + REPLAY_US; /* the silence was ours */
		kvr_cell_sub(&a->st.events_wait, 1);
		app_is_news(a, &s->slow, "");
	}
	if (s->held && a->now_us - s->held_us >= SLOW_US &&
	    app_is_news(a, &s->slow, "its events wait"))
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = a->o.router),
			"rank %u: its events wait for the router, which takes them slower than "
			"they "
			"come",
			s->dp_rank);
	return s->held;
}

/* All parts of one message. @return their number, 0: nothing there; too many are dropped. */
static int receive(void *socket, zmq_msg_t frame[MAX_FRAMES])
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

static void release(zmq_msg_t frame[], int n)
{
	for (int i = 0; i < n && i < MAX_FRAMES; i++)
		zmq_msg_close(&frame[i]);
}

/* What came by the connection before and was not taken. Of that some may be the new engine's
 * already; a replay brings these again. */
static void drop_old(struct app_stream *s)
{
	zmq_msg_t frame[MAX_FRAMES];
	int n;

	for (unsigned int i = 0; i < REST_MOST && (n = receive(s->sub, frame)) > 0; i++)
		release(frame, n);
}

/* The connection to the engine is new: it may be another engine, and we know nothing of it. What
 * the one before was asked, this one does not answer. */
static void connected(struct app_stream *s)
{
	const bool first = s->fresh && s->next == 0;

	if (s->dealer != NULL && (!first || s->replaying)) {
		drop_old(s);
		close_question(s);
		drop_shown(s);
	}
	if (!first) {
		app_stream_renew(s, "the connection to its events is a new one");
		s->next = s->floor = 0;
		s->fresh = true;
	}
	ask_replay(s, true, NONE);
}

/* @return what a message of @p n parts counts for in a turn. */
static size_t cost(zmq_msg_t frame[], int n)
{
	return BATCH_COSTS + (n <= MAX_FRAMES ? zmq_msg_size(&frame[n - 1]) : 0);
}

/* What has come, as far as the router takes it, until it counts for @p most. @return whether that
 * was all. */
static bool take(struct app_stream *s, size_t most)
{
	zmq_msg_t frame[MAX_FRAMES];
	size_t taken = 0;
	int n;

	while (s->replaying && taken < most && !holds(s) && (n = receive(s->dealer, frame)) > 0) {
		taken += cost(frame, n);
		take_replay(s, frame, n);
		release(frame, n);
	}
	if (s->replaying && taken == 0 && !s->held && s->app->now_us > s->replay_us)
		give_up_replay(s);
	while (!s->replaying && taken < most && !holds(s) && (n = receive(s->sub, frame)) > 0) {
		taken += cost(frame, n);
		take_live(s, frame, n);
		release(frame, n);
	}
	if (taken >= most)
		s->app->more = true;
	return !s->replaying && taken < most && !s->held;
}

static void turn(struct app_stream *s, size_t most)
{
	zmq_msg_t frame[MAX_FRAMES];
	bool all;
	int n;

	while ((n = receive(s->monitor, frame)) > 0) {
		connected(s);
		release(frame, n);
	}
	all = take(s, most);
	app_stream_clear_wakeups(s);
	if (all && s->app->o.replay[0] != '\0' && s->app->now_us > s->audit_us)
		ask_replay(s, true, NONE);
}

static bool listens(const struct app *a)
{
	return a->streams != NULL && a->streams[0]->sub != NULL;
}

void app_streams_turn(struct app *a)
{
	for (uint32_t i = 0; listens(a) && i < a->o.ranks; i++)
		turn(a->streams[i], TURN_BYTES / a->o.ranks);
}

void app_streams_resume(struct app *a)
{
	for (uint32_t i = 0; listens(a) && i < a->o.ranks; i++)
		if (a->streams[i]->held && !holds(a->streams[i]))
			a->more = true;
}

/* ---- life ---- */

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
