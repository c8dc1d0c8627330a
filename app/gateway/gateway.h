/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_GATEWAY_H
#define GW_GATEWAY_H

/**
 * @file
 * kvroute-gateway: HTTP of the OpenAI kind in front, lib/client behind. One process, one event
 * loop a thread; a thread has its own listening socket (SO_REUSEPORT), its own client of every
 * router, its own cache of token ids and its own row of counters, so threads share nothing that
 * is written.
 *
 * HTTP/1.1 and HTTP/2 without TLS are libh2o's (Debian 12: 2.2.5). libmicrohttpd was measured
 * beside it: one thread, POST of 1 KiB, 32 connections kept alive, wrk on the other core of a
 * shared virtual machine: h2o 94,276 and 87,978 requests/s with 234 and 248 us in the median,
 * libmicrohttpd 89,708 and 80,967 with 290 and 298 us, in turns. libmicrohttpd has no HTTP/2 and
 * answers from a thread of its own; h2o's loop also carries the routers' sockets.
 *
 * The order of files: stats, errors, hints, media, ask, source (pure); options; tokens; router;
 * answer; buffers; choice; streams; conn; room; lease; message; again; call; pages; heads; serve;
 * main.
 */

#include <time.h>

#include <h2o.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "options.h"
#include "stats.h"

#define GW_MAX_STREAMS 256    /* of an HTTP/2 connection, open at once */
#define GW_SLOWEST     65536u /* bytes a second: a request that grows so fast may come in */

struct gw_call;
struct gw_lease;
struct gw_leases;
struct gw_router;
struct gw_source;
struct gw_sources;
struct gw_stream;
struct gw_tokens;

LIST_HEAD(gw_call_list, gw_call);
TAILQ_HEAD(gw_conns, gw_conn);
TAILQ_HEAD(gw_streams, gw_stream);

/** What a connection is doing. HTTP/2: many things, which are no matter of the connection. */
enum gw_conn_state {
	GW_CONN_NONE,	/* there is none, or not any more for us */
	GW_CONN_SILENT, /* nothing has come yet */
	GW_CONN_COMES,	/* the beginning of a request has */
	GW_CONN_RUNS,	/* one is answered */
	GW_CONN_IDLE,	/* between two */
	GW_CONN_HTTP2,
};

/** A connection of a client, by its descriptor. */
struct gw_conn {
	struct gw_thread *t;
	struct gw_source *source; /* where it comes from */
	struct gw_call *call;	  /* HTTP/1: under way */
	TAILQ_ENTRY(gw_conn) link;
	h2o_buffer_t **input;
	uint64_t since_ms; /* of the state */
	size_t had;	   /* bytes of input then */
	enum gw_conn_state state;
	bool half_closed; /* HTTP/1: the client's side is, maybe before its request is read */
	uint32_t resets;  /* HTTP/2: requests that the client gave up, in `second` */
	uint64_t second;
};

/** One event loop. Everything is its thread's own, but `stop` and what is marked ro. */
struct gw_thread {
	const struct gw_options *opt; /* ro */
	struct kvr_stats *stats;      /* every thread's rows, for /metrics */
	kvr_cell_t *row;	      /* our row */
	const atomic_int *stop;	      /* main: rw. 1: no new connections, 2: end now */

	h2o_globalconf_t conf;
	h2o_context_t ctx;
	h2o_accept_ctx_t accept;
	h2o_socket_t *listener;
	h2o_socket_t *watch_sock; /* an epoll set of its own: who has closed his side */
	int watch_fd;
	struct gw_conn *by_fd;
	uint32_t n_fds, used_fds; /* places that it has, and below which are all that were used */
	uint64_t look_ms;	  /* when gw_conn_stalled() looks again */
	uint64_t parts_ms;	  /* gw_conn_turn() has looked for parts of requests up to then */
	struct gw_conns coming;	  /* SILENT and COMES, by since_ms */
	struct gw_conns idle;	  /* IDLE */
	struct gw_streams streams;

	struct gw_router *routers;		  /* opt->n_routers */
	void (*router_lost)(struct gw_router *r); /* what waits there must go elsewhere */
	struct gw_sources *sources;		  /* those of its connections */
	struct gw_tokens *tokens;		  /* NULL: there is no tokenizer */
	struct gw_talks *talks;			  /* NULL as well, then */
	struct gw_leases *leases;		  /* of all threads */
	uint32_t number;			  /* of this one */
	bool ready; /* GW_THREADS_READY: a router answers, and serves a model */
	struct gw_call_list calls;
	uint32_t retry_credit; /* again.h */
	uint64_t rest_ms;      /* accept again then: there were no descriptors; 0: accepting */
	/* libh2o was given something to send. Outside its loop it does not see by itself that there
	 * is something to do: it must not wait then. */
	bool touched;
};

/**
 * Milliseconds of a clock that nobody sets: libh2o's is that of the wall. With that one all who
 * were late by the day before would be cut off when it is set back, and who waits would wait for
 * it.
 */
static inline uint64_t gw_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

#define GW_COUNT(t, counter) kvr_stats_inc((t)->row, counter)

/** Bytes by which a request grows in --header-ms when it may go on. */
static inline size_t gw_grows(const struct gw_options *o)
{
	return (size_t)o->header_ms * GW_SLOWEST / 1000;
}

#endif
