/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_ENGINE_H
#define AGENT_ENGINE_H

/**
 * @file
 * Connections to the engine for requests: HTTP/1.1, persistent, one request at a time on each, in
 * the agent's epoll set. A request costs one send and one receive, a token one receive, and a
 * connection one epoll_ctl() in its lifetime. (libcurl, used for /health and other rare transfers,
 * needs a third more CPU: perf/e2e/gateway/README.md.)
 *
 * The engine may have closed an idle connection, which is checked before a request is sent. If
 * sending fails nevertheless before the first byte, the request uses a new connection with its own
 * --connect-ms. A request of which a byte was sent is never sent again, because the engine may have
 * begun to execute it.
 *
 * From four running requests on, spare connections are opened in advance: one for each four
 * requests, at most 16. If the engine closes an unused spare, or refuses one, no more are opened
 * for a second. Idle connections are closed after a minute.
 *
 * Everything belongs to the one thread.
 */

#include "app.h"
#include "kvr_http_reader.h"

#include <sys/socket.h>

struct app_engine;

/** How a request ended at the engine. */
enum app_end { APP_END_WELL, APP_END_BROKEN, APP_END_LATE };

/** Callbacks of a request. */
struct app_ask_ops {
	/** Return true if more may be read. Otherwise reading stops until app_engine_resume(). */
	bool (*takes)(void *arg);
	/** See kvr_http_reader.h. Results: -ECANCELED: the head cannot be forwarded; -EOVERFLOW: it
	 * is too long; -ENOMEM. */
	struct kvr_http_reader_ops answer;
	/** The answer is complete, or failed for the reason @p why. The last callback. */
	void (*ended)(void *arg, enum app_end how, const char *why);
};

/** A request; must remain valid until its end. */
struct app_ask {
	const struct app_ask_ops *ops;
	void *arg;
	struct app_conn *conn; /**< NULL: none */
	char *head;	       /**< ends with an empty line; the owner frees head and content */
	size_t head_len;
	char *content;
	size_t content_len;
	bool is_head; /**< the method is HEAD */
};

/** @return 0 or -ENOMEM. */
int app_engine_init(struct app *app);
void app_engine_fini(struct app *app);

/** Set the engine's address, after it answered there. */
void app_engine_set_address(struct app *app, const struct sockaddr *at, socklen_t len);

/** Send a request. May call ended() if there is no connection. */
void app_engine_send(struct app *app, struct app_ask *ask);

/** Abandon a request: the connection is closed, so that the engine stops. */
void app_engine_drop(struct app *app, struct app_ask *ask);

/** Received data were forwarded: continue reading. */
void app_engine_resume(struct app *app, struct app_ask *ask);

/** Handle an epoll event; @p name as given to the set. */
void app_engine_ready(struct app *app, uint32_t name, uint32_t events);

/** Apply the limits: --connect-ms to connections, --inactivity-s to requests. A request that is
 * paused has no limit: the engine waits for the router. */
void app_engine_turn(struct app *app);
uint64_t app_engine_due_us(const struct app *app);

/** Open a spare connection if useful; after the turn's frames were sent. */
void app_engine_open_spare(struct app *app);

#endif
