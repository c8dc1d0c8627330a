/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets of an event stream: SUB, a monitor of its connection, and a DEALER for replays. */
#include "stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <zmq.h>

static int set_option(void *socket, int option, int value)
{
	return zmq_setsockopt(socket, option, &value, sizeof(value));
}

/*
 * Messages that libzmq holds per socket. Its limit counts batches (STREAM_BATCHES), not bytes, and
 * lowering it later may stop a pipe forever, so both limits are set once. A prompt of 16,384 tokens
 * is a batch of 90 KiB, 64 of them less than 6 MiB; clearing a cache of a million blocks is a batch
 * of 9 MiB. Further batches remain in TCP's buffers and at the engine: a PUB socket of vLLM and
 * SGLang keeps 100,000 before it drops, their ROUTER 1,000 of a replay.
 */
#define BATCH_BYTES (INT64_C(16) << 20) /* a larger batch ends the connection */

/* Wake the loop when something happens to a socket; the loop determines what. */
static int watch_socket(struct app *app, void *socket)
{
	size_t len = sizeof(int);
	int fd;

	zmq_getsockopt(socket, ZMQ_FD, &fd, &len);
	return app_watch(app, EPOLL_CTL_ADD, fd, APP_FD_ZMQ, (uint32_t)fd, EPOLLIN);
}

static void *open_socket(struct app_stream *stream, int type)
{
	const int64_t most = BATCH_BYTES;
	void *z = zmq_socket(stream->app->zmq, type);

	if (z == NULL)
		return NULL;
	set_option(z, ZMQ_LINGER, 0);
	set_option(z, ZMQ_RCVHWM, STREAM_BATCHES);
	set_option(z, ZMQ_RECONNECT_IVL, 100);
	set_option(z, ZMQ_RECONNECT_IVL_MAX, 2000);
	set_option(z, ZMQ_TCP_KEEPALIVE, 1);
	set_option(z, ZMQ_IPV6, 1);
	zmq_setsockopt(z, ZMQ_MAXMSGSIZE, &most, sizeof(most));
	if (type == ZMQ_SUB)
		zmq_setsockopt(z, ZMQ_SUBSCRIBE, stream->app->o.topic,
			       strlen(stream->app->o.topic));
	return z;
}

static int connect_socket(struct app_stream *stream, void *z, bool replay)
{
	char where[300];

	agent_facts_endpoint(&stream->app->facts, &stream->app->given, replay,
			     stream->dp_rank - stream->app->o.first_rank, where, sizeof(where));
	if (zmq_connect(z, where) < 0) {
		app_log(stream->app,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = where,
				      .reason = zmq_strerror(zmq_errno())),
			"rank %u: cannot connect to the engine's socket", stream->dp_rank);
		return -EINVAL;
	}
	return watch_socket(stream->app, z);
}

void app_stream_open_dealer(struct app_stream *stream)
{
	stream->dealer = open_socket(stream, ZMQ_DEALER);
	if (stream->dealer != NULL && connect_socket(stream, stream->dealer, true) < 0) {
		zmq_close(stream->dealer);
		stream->dealer = NULL;
	}
}

/* The monitor is opened before the connection, so that it reports the first one, too. */
int app_stream_open(struct app_stream *stream)
{
	char where[64];
	int rc;

	stream->sub = open_socket(stream, ZMQ_SUB);
	stream->monitor = zmq_socket(stream->app->zmq, ZMQ_PAIR);
	if (stream->sub == NULL || stream->monitor == NULL)
		return -ENOMEM;
	set_option(stream->monitor, ZMQ_LINGER, 0);
	snprintf(where, sizeof(where), "inproc://monitor-%u-%p", stream->dp_rank, stream->sub);
	if (stream->app->o.replay[0] != '\0')
		app_stream_open_dealer(stream);
	if (zmq_socket_monitor(stream->sub, where, ZMQ_EVENT_CONNECTED) < 0 ||
	    zmq_connect(stream->monitor, where) < 0)
		return -EINVAL;
	rc = watch_socket(stream->app, stream->monitor);
	return rc < 0 ? rc : connect_socket(stream, stream->sub, false);
}

/* Make the descriptor of a socket unreadable until something else happens to it. */
static void clear_wakeup(void *socket)
{
	size_t len = sizeof(int);
	int events;

	zmq_getsockopt(socket, ZMQ_EVENTS, &events, &len);
}

void app_stream_clear_wakeups(struct app_stream *stream)
{
	if (stream->held || stream->replaying)
		clear_wakeup(stream->sub);
	/* During a replay the DEALER is read until it is empty, and a message may have come since.
	 */
	if (stream->dealer != NULL && (stream->held || !stream->replaying))
		clear_wakeup(stream->dealer);
}

void app_stream_close(struct app_stream *stream)
{
	if (stream->sub != NULL) {
		zmq_socket_monitor(stream->sub, NULL, 0);
		zmq_close(stream->sub);
	}
	if (stream->monitor != NULL)
		zmq_close(stream->monitor);
	if (stream->dealer != NULL)
		zmq_close(stream->dealer);
}
