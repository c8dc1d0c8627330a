/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Order of batches: live batches from SUB, replays from DEALER, gaps, audits, and back-pressure.
 * The number of the next batch decides everything; content is applied in stream_apply.c.
 */
#include "stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#define TURN_BYTES                                                                                 \
	262144u		  /* budget of batches per turn over all ranks, so that requests proceed   \
			   */
#define BATCH_COSTS  256u /* least cost of a batch in this budget */
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
static bool ask_replay(struct app_stream *stream, bool audit, uint64_t seen)
{
	uint8_t from[8];

	for (int i = 0; i < 8; i++)
		from[i] = (uint8_t)(stream->next >> (56 - 8 * i));
	stream->audit_us = stream->app->now_us + stream->app->o.audit_s * UINT64_C(1000000);
	if (stream->dealer == NULL && stream->app->o.replay[0] != '\0')
		app_stream_open_dealer(stream); /* it could not be opened before */
	if (stream->dealer == NULL ||
	    zmq_send(stream->dealer, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
	    zmq_send(stream->dealer, from, 8, ZMQ_DONTWAIT) < 0)
		return false;
	kvr_cell_add(&stream->app->st.replays, 1);
	stream->replaying = true;
	stream->begun = false;
	stream->again = 0;
	stream->audit = audit;
	stream->seen = seen;
	stream->replay_us = stream->app->now_us + REPLAY_US;
	return true;
}

static void drop_shown(struct app_stream *stream)
{
	zmq_msg_close(&stream->shown);
	zmq_msg_init(&stream->shown);
}

/* The missing batches are not available: the rank holds the content of the batch that showed the
 * gap, and of later ones. */
static void go_on_without(struct app_stream *stream, const char *why)
{
	app_stream_clean(stream, why);
	stream->fresh = false;
	stream->next = stream->floor = stream->seen + 1;
	app_stream_apply(stream, zmq_msg_data(&stream->shown), zmq_msg_size(&stream->shown));
	drop_shown(stream);
}

/* Part of the answer was lost, because the engine's ROUTER drops messages above its limit: ask for
 * the rest. @return false: nothing arrived, or too many attempts. */
static bool ask_for_rest(struct app_stream *stream)
{
	const uint32_t again = stream->again + 1;

	if (!stream->begun || again > REPLAY_AGAIN ||
	    !ask_replay(stream, stream->audit, stream->seen))
		return false;
	stream->again = again;
	return true;
}

/* Batches published during a replay wait in the sockets, and may be dropped there. If the engine
 * then publishes nothing, no gap shows that, so audit soon. */
static void end_replay(struct app_stream *stream)
{
	stream->replaying = false;
	if (stream->begun && stream->audit_us > stream->app->now_us + SOON_US)
		stream->audit_us = stream->app->now_us + SOON_US;
	if (stream->seen == NONE || stream->next > stream->seen)
		drop_shown(stream); /* the replay included it */
	else if (!ask_for_rest(stream))
		go_on_without(stream, "the replay lacks the missing batches");
}

/* Open a new socket, so that late answers are not taken for those of the next question. */
static void close_question(struct app_stream *stream)
{
	zmq_close(stream->dealer);
	app_stream_open_dealer(stream);
	stream->replaying = false;
}

static void drop_replay(struct app_stream *stream)
{
	close_question(stream);
	end_replay(stream);
}

/* Give up a replay. Batches wait for its answer, so unanswered audits become rare. */
static void give_up_replay(struct app_stream *stream)
{
	const uint64_t audit_us = stream->app->o.audit_s * UINT64_C(1000000);

	if (!stream->begun && stream->unanswered < AUDIT_SHIFT)
		stream->unanswered++;
	if (app_is_news(stream->app, &stream->mute, "no answer"))
		app_log(stream->app,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = stream->app->o.replay),
			"rank %u: no answer from the replay socket; missed events are lost",
			stream->dp_rank);
	drop_replay(stream);
	if (!stream->begun && !stream->replaying)
		stream->audit_us = stream->app->now_us + (audit_us << stream->unanswered);
}

static void reject_replay(struct app_stream *stream)
{
	app_log(stream->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"rank %u: unexpected answer from the replay socket %s", stream->dp_rank,
		stream->app->o.replay);
	app_stream_bad(stream);
	drop_replay(stream);
}

/* A replay continues from `next` without gaps. It may begin later, if the engine dropped batches,
 * but not after the batch that showed the gap. */
static bool is_answer(const struct app_stream *stream, uint64_t number)
{
	return number == stream->next || (number > stream->next && !stream->begun &&
					  (stream->seen == NONE || number <= stream->seen));
}

/* Handle one answer: [] [seq] [payload], or [] [topic] [seq] [payload]; number -1 ends the
 * replay. */
static void take_replay(struct app_stream *stream, zmq_msg_t *frame, int n)
{
	const bool framed = n >= 3 && n <= 4 && zmq_msg_size(&frame[n - 2]) == 8;
	const uint64_t number = framed ? read_be64(zmq_msg_data(&frame[n - 2])) : 0;

	stream->unanswered = 0;
	app_is_news(stream->app, &stream->mute, "");
	if (framed && number == NONE) {
		end_replay(stream);
		return;
	}
	if (framed && stream->begun && number > stream->next) {
		drop_replay(stream); /* some answers were dropped at the engine */
		return;
	}
	if (!framed || !is_answer(stream, number)) {
		reject_replay(stream);
		return;
	}
	if (number > stream->next && stream->seen == NONE && !stream->fresh &&
	    stream->behind != stream->next) {
		stream->behind = stream->next;
		drop_replay(stream); /* the missing batches may still arrive: decide at the next
					audit */
		return;
	}
	stream->replay_us = stream->app->now_us + REPLAY_US;
	if (number > stream->next) {
		if (!stream->fresh)
			app_stream_clean(stream, "the replay begins after the missing batches");
		stream->floor = number; /* earlier batches are not available */
	}
	kvr_cell_add(&stream->app->st.replayed, 1);
	stream->begun = true;
	stream->fresh = false;
	stream->next = number + 1;
	app_stream_apply(stream, zmq_msg_data(&frame[n - 1]), zmq_msg_size(&frame[n - 1]));
}

/* ---- live ---- */

static void take_live(struct app_stream *stream, zmq_msg_t *frame, int n)
{
	uint64_t number;

	if (n != 3 || zmq_msg_size(&frame[1]) != 8) {
		app_stream_bad(stream);
		app_log(stream->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"rank %u: a message of %d parts is not a batch", stream->dp_rank, n);
		return;
	}
	number = read_be64(zmq_msg_data(&frame[1]));
	if (number < stream->next && number >= stream->floor)
		return; /* received by a replay */
	if (number < stream->next) {
		kvr_cell_add(&stream->app->st.regressions, 1);
		app_stream_renew(stream, "the numbers of batches decreased");
		stream->next = stream->floor = 0;
		stream->fresh = true;
	}
	if (stream->fresh && stream->app->o.replay[0] == '\0')
		stream->next = number; /* earlier batches are unknown */
	if (number > stream->next) {
		kvr_cell_add(&stream->app->st.gaps, 1);
		if (ask_replay(stream, false,
			       number)) { /* the replay includes this batch, if the engine has it */
			zmq_msg_move(&stream->shown, &frame[2]);
			return;
		}
		app_stream_clean(stream, "batches are missing and there is no replay socket");
	}
	stream->fresh = false;
	stream->next = stream->floor = number + 1; /* batches of the last replay are now old */
	app_stream_apply(stream, zmq_msg_data(&frame[2]), zmq_msg_size(&frame[2]));
}

/* ---- back-pressure ---- */

/* Return true if too many events wait for the router. */
static bool is_held(struct app_stream *stream)
{
	struct app *app = stream->app;
	const uint64_t waiting =
		app->agent != NULL ? kvr_agent_kv_waiting(app->agent, stream->to->dp_rank) : 0;

	if (!stream->held && waiting >= HOLD_BYTES) {
		stream->held = true;
		stream->held_us = app->now_us;
		kvr_cell_add(&app->st.events_held, 1);
		kvr_cell_add(&app->st.events_wait, 1);
	} else if (stream->held && waiting < RESUME_BYTES) {
		stream->held = false;
		stream->replay_us =
			app->now_us + REPLAY_US; /* waiting does not count against the replay */
		kvr_cell_sub(&app->st.events_wait, 1);
		app_is_news(app, &stream->slow, "");
	}
	if (stream->held && app->now_us - stream->held_us >= SLOW_US &&
	    app_is_news(app, &stream->slow, "its events wait"))
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = app->o.router),
			"rank %u: events arrive faster than the router accepts them",
			stream->dp_rank);
	return stream->held;
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
static void drop_old(struct app_stream *stream)
{
	zmq_msg_t frame[MAX_FRAMES];
	int n;

	for (unsigned int i = 0; i < REST_MOST && (n = receive_message(stream->sub, frame)) > 0;
	     i++)
		release_message(frame, n);
}

/* The connection to the engine is new: it may be another engine, which will not answer questions to
 * its predecessor. */
static void on_connected(struct app_stream *stream)
{
	const bool first = stream->fresh && stream->next == 0;

	if (stream->dealer != NULL && (!first || stream->replaying)) {
		drop_old(stream);
		close_question(stream);
		drop_shown(stream);
	}
	if (!first) {
		app_stream_renew(stream, "the event connection was re-established");
		stream->next = stream->floor = 0;
		stream->fresh = true;
	}
	ask_replay(stream, true, NONE);
}

/* Cost of a message of @p n parts in the budget of a turn. */
static size_t message_cost(zmq_msg_t frame[], int n)
{
	return BATCH_COSTS + (n <= MAX_FRAMES ? zmq_msg_size(&frame[n - 1]) : 0);
}

/* Read messages until the router or the budget @p most stops it. @return true: everything was
 * read. */
static bool read_messages(struct app_stream *stream, size_t most)
{
	zmq_msg_t frame[MAX_FRAMES];
	size_t taken = 0;
	int n;

	while (stream->replaying && taken < most && !is_held(stream) &&
	       (n = receive_message(stream->dealer, frame)) > 0) {
		taken += message_cost(frame, n);
		take_replay(stream, frame, n);
		release_message(frame, n);
	}
	if (stream->replaying && taken == 0 && !stream->held &&
	    stream->app->now_us > stream->replay_us)
		give_up_replay(stream);
	while (!stream->replaying && taken < most && !is_held(stream) &&
	       (n = receive_message(stream->sub, frame)) > 0) {
		taken += message_cost(frame, n);
		take_live(stream, frame, n);
		release_message(frame, n);
	}
	if (taken >= most)
		stream->app->more = true;
	return !stream->replaying && taken < most && !stream->held;
}

static void run_stream(struct app_stream *stream, size_t most)
{
	zmq_msg_t frame[MAX_FRAMES];
	bool all;
	int n;

	while ((n = receive_message(stream->monitor, frame)) > 0) {
		on_connected(stream);
		release_message(frame, n);
	}
	all = read_messages(stream, most);
	app_stream_clear_wakeups(stream);
	if (all && stream->app->o.replay[0] != '\0' && stream->app->now_us > stream->audit_us)
		ask_replay(stream, true, NONE);
}

static bool is_open(const struct app *app)
{
	return app->streams != NULL && app->streams[0]->sub != NULL;
}

void app_streams_turn(struct app *app)
{
	for (uint32_t i = 0; is_open(app) && i < app->o.ranks; i++)
		run_stream(app->streams[i], TURN_BYTES / app->o.ranks);
}

void app_streams_resume(struct app *app)
{
	for (uint32_t i = 0; is_open(app) && i < app->o.ranks; i++)
		if (app->streams[i]->held && !is_held(app->streams[i]))
			app->more = true;
}

/* ---- start and stop ---- */

static struct app_stream *new_stream(struct app *app, uint32_t dp_rank, uint32_t blocks)
{
	struct app_stream *stream = calloc(1, sizeof(*stream));
	uint64_t seed = 0;

	if (stream == NULL)
		return NULL;
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) < 0)
		seed = app->now_us;
	stream->app = app;
	stream->dp_rank = dp_rank;
	stream->to = stream;
	stream->fresh = true;
	stream->seen = stream->behind = NONE;
	zmq_msg_init(&stream->shown);
	stream->audit_us = app->now_us + app->o.audit_s * UINT64_C(1000000);
	stream->decoder = kvr_kvev_create(app->o.type == AGENT_SGLANG);
	stream->map = app_stream_table(stream, blocks, seed);
	return stream;
}

int app_streams_start(struct app *app)
{
	uint64_t blocks = app->o.kv_blocks != 0 ? app->o.kv_blocks
			  : app->blocks != 0	? 2 * app->blocks
						: 1u << 20;

	if (blocks > 1u << 30)
		blocks = 1u << 30;
	app->streams = calloc(app->o.ranks, sizeof(app->streams[0]));
	if (app->streams == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < app->o.ranks; i++) {
		struct app_stream *stream =
			new_stream(app, app->o.first_rank + i, (uint32_t)blocks);

		app->streams[i] = stream;
		if (stream == NULL || stream->decoder == NULL || stream->map == NULL)
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < app->o.ranks && app->o.events[0] != '\0'; i++) {
		const int rc = app_stream_open(app->streams[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

void app_streams_stop(struct app *app)
{
	for (uint32_t i = 0; app->streams != NULL && i < app->o.ranks; i++) {
		struct app_stream *stream = app->streams[i];

		if (stream == NULL)
			continue;
		if (stream->held)
			kvr_cell_sub(&app->st.events_wait, 1);
		app_stream_close(stream);
		zmq_msg_close(&stream->shown);
		kvr_kvev_destroy(stream->decoder);
		kvr_kvmap_destroy(stream->map);
		free(stream);
	}
	free(app->streams);
	app->streams = NULL;
}
