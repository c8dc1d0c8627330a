/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_GATEWAY_H
#define GW_GATEWAY_H

/**
 * @file
 * kvroute-gateway: OpenAI-compatible HTTP in front, lib/client behind. One process with one event
 * loop per thread. A thread has its own listening socket (SO_REUSEPORT), its own client of every
 * router, its own cache of token ids and its own row of counters, so threads share no data that is
 * written, except bookings (pick_lease.h).
 *
 * HTTP/1.1 and HTTP/2 without TLS are provided by libh2o (Debian 12: 2.2.5). Measured in comparison
 * with libmicrohttpd: one thread, POST of 1 KiB, 32 persistent connections, wrk on the other core
 * of a shared virtual machine: h2o 94,276 and 87,978 requests/s with a median of 234 and 248 us,
 * libmicrohttpd 89,708 and 80,967 with 290 and 298 us, alternating. libmicrohttpd has no HTTP/2 and
 * answers from its own thread; h2o's loop also serves the routers' sockets.
 *
 * Order of files: stats, errors, hints, media, ask, source (pure); options; tokens; turn_cache;
 * tokenize_conversation; router; answer; buffers; pick_reply; streams; conn; body_budget;
 * pick_lease; engine_request; retry; call; status_endpoints; http1_guard; serve; main.
 */

#include <time.h>

#include <h2o.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "options.h"
#include "stats.h"

#define GW_MAX_STREAMS 256    /* open streams per HTTP/2 connection */
#define GW_SLOWEST     65536u /* bytes per second: a request that grows at this rate may continue */

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

/** State of a connection. An HTTP/2 connection may have several requests. */
enum gw_conn_state {
	GW_CONN_NONE,	/* none, or no longer of interest */
	GW_CONN_SILENT, /* nothing received yet */
	GW_CONN_COMES,	/* part of a request received */
	GW_CONN_RUNS,	/* a request runs */
	GW_CONN_IDLE,	/* between two requests */
	GW_CONN_HTTP2,
};

/** A client connection, by its descriptor. */
struct gw_conn {
	struct gw_thread *thread;
	struct gw_source *source; /* client address */
	struct gw_call *call;	  /* HTTP/1: running request */
	TAILQ_ENTRY(gw_conn) link;
	h2o_buffer_t **input;
	uint64_t since_ms; /* start of the state */
	size_t had;	   /* bytes of input at that time */
	enum gw_conn_state state;
	bool half_closed; /* HTTP/1: the client closed its side, perhaps before its request was read
			   */
	uint32_t resets;  /* HTTP/2: requests reset by the client within `second` */
	uint64_t second;
};

/** One event loop. Everything belongs to its thread, except `stop` and fields marked ro. */
struct gw_thread {
	const struct gw_options *opt; /* ro */
	struct kvr_stats *stats;      /* rows of all threads, for /metrics */
	kvr_cell_t *row;	      /* row of this thread */
	const atomic_int *stop;	      /* main: rw. 1: no new connections, 2: end now */

	h2o_globalconf_t conf;
	h2o_context_t ctx;
	h2o_accept_ctx_t accept;
	h2o_socket_t *listener;
	h2o_socket_t *watch_sock; /* a separate epoll set: half-closed connections */
	int watch_fd;
	struct gw_conn *by_fd;
	uint32_t n_fds, used_fds; /* number of places, and upper bound of those ever used */
	uint64_t look_ms;	  /* next check of gw_conn_stalled() */
	uint64_t parts_ms;	  /* gw_conn_turn() has checked partial requests up to this time */
	struct gw_conns coming;	  /* SILENT and COMES, by since_ms */
	struct gw_conns idle;	  /* IDLE */
	struct gw_streams streams;

	struct gw_router *routers; /* opt->n_routers entries */
	void (*router_lost)(
		struct gw_router *router); /* requests of the router must move to another one */
	struct gw_sources *sources;	   /* addresses of its connections */
	struct gw_tokens *tokens;	   /* NULL: no tokenizer */
	struct gw_conversations *talks;	   /* NULL likewise */
	struct gw_leases *leases;	   /* shared by all threads */
	uint32_t number;		   /* index of this thread */
	bool ready; /* GW_THREADS_READY: a router answers and serves a model */
	struct gw_call_list calls;
	uint32_t retry_credit; /* see retry.h */
	uint64_t rest_ms; /* time to accept again after descriptors were exhausted; 0: accepting */
	/* libh2o was given data outside its loop, which must not wait then. */
	bool touched;
};

/**
 * Milliseconds of the monotonic clock. libh2o uses the wall clock: if that is set back, waiting
 * requests would be cut off or wait too long.
 */
static inline uint64_t gw_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

#define GW_COUNT(t, counter) kvr_stats_inc((t)->row, counter)

/** Bytes by which a request must grow within --header-ms. */
static inline size_t gw_grows(const struct gw_options *options)
{
	return (size_t)options->header_ms * GW_SLOWEST / 1000;
}

#endif
