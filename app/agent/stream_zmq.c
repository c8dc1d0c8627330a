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
static int watch_socket(struct app *a, void *socket)
{
	size_t len = sizeof(int);
	int fd;

	zmq_getsockopt(socket, ZMQ_FD, &fd, &len);
	return app_watch(a, EPOLL_CTL_ADD, fd, APP_FD_ZMQ, (uint32_t)fd, EPOLLIN);
}

static void *open_socket(struct app_stream *s, int type)
{
	const int64_t most = BATCH_BYTES;
	void *z = zmq_socket(s->app->zmq, type);

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
		zmq_setsockopt(z, ZMQ_SUBSCRIBE, s->app->o.topic, strlen(s->app->o.topic));
	return z;
}

static int connect_socket(struct app_stream *s, void *z, bool replay)
{
	char where[300];

	agent_facts_endpoint(&s->app->facts, &s->app->given, replay,
			     s->dp_rank - s->app->o.first_rank, where, sizeof(where));
	if (zmq_connect(z, where) < 0) {
		app_log(s->app,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = where,
				      .reason = zmq_strerror(zmq_errno())),
			"rank %u: cannot connect to the engine's socket", s->dp_rank);
		return -EINVAL;
	}
	return watch_socket(s->app, z);
}

void app_stream_open_dealer(struct app_stream *s)
{
	s->dealer = open_socket(s, ZMQ_DEALER);
	if (s->dealer != NULL && connect_socket(s, s->dealer, true) < 0) {
		zmq_close(s->dealer);
		s->dealer = NULL;
	}
}

/* The monitor is opened before the connection, so that it reports the first one, too. */
int app_stream_open(struct app_stream *s)
{
	char where[64];
	int rc;

	s->sub = open_socket(s, ZMQ_SUB);
	s->monitor = zmq_socket(s->app->zmq, ZMQ_PAIR);
	if (s->sub == NULL || s->monitor == NULL)
		return -ENOMEM;
	set_option(s->monitor, ZMQ_LINGER, 0);
	snprintf(where, sizeof(where), "inproc://monitor-%u-%p", s->dp_rank, s->sub);
	if (s->app->o.replay[0] != '\0')
		app_stream_open_dealer(s);
	if (zmq_socket_monitor(s->sub, where, ZMQ_EVENT_CONNECTED) < 0 ||
	    zmq_connect(s->monitor, where) < 0)
		return -EINVAL;
	rc = watch_socket(s->app, s->monitor);
	return rc < 0 ? rc : connect_socket(s, s->sub, false);
}

/* Make the descriptor of a socket unreadable until something else happens to it. */
static void clear_wakeup(void *socket)
{
	size_t len = sizeof(int);
	int events;

	zmq_getsockopt(socket, ZMQ_EVENTS, &events, &len);
}

void app_stream_clear_wakeups(struct app_stream *s)
{
	if (s->held || s->replaying)
		clear_wakeup(s->sub);
	/* During a replay the DEALER is read until it is empty, and a message may have come since.
	 */
	if (s->dealer != NULL && (s->held || !s->replaying))
		clear_wakeup(s->dealer);
}

void app_stream_close(struct app_stream *s)
{
	if (s->sub != NULL) {
		zmq_socket_monitor(s->sub, NULL, 0);
		zmq_close(s->sub);
	}
	if (s->monitor != NULL)
		zmq_close(s->monitor);
	if (s->dealer != NULL)
		zmq_close(s->dealer);
}
