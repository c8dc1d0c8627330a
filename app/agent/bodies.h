/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_BODIES_H
#define AGENT_BODIES_H

/**
 * @file
 * Bodies of requests that do not come in frames (PROTOCOL.md, section 19). A DISPATCH states a
 * length and a token for one use, and the client sends the body to the agent's own HTTP port: PUT
 * /kvroute/body/TOKEN. One thread, at most 64 connections, and at most --bodies-bytes at once. If a
 * body does not arrive within --body-ms, its request ends with 408.
 */

#include "app.h"

struct app_body; /* a body that a job waits for */

/** Callbacks for waiting jobs. */
struct app_bodies_ops {
	void (*come)(struct app_job *job, const char *message, size_t len); /* an HTTP message */
	void (*missed)(struct app_job *job, uint16_t status, const char *why);
};

/**
 * Start listening, if enabled, and determine the address for clients. @p ops must remain valid.
 * @return 0; -EINVAL: --bodies or --bodies-advertise is not a numeric address and port;
 * -EADDRNOTAVAIL: clients elsewhere could not reach it; another -errno of the socket.
 */
int app_bodies_start(struct app *app, const struct app_bodies_ops *ops);
void app_bodies_stop(struct app *app);

/** Handle an event of connection @p index; UINT32_MAX: of the listening socket. */
void app_bodies_ready(struct app *app, uint32_t index);

/** Handle expired connections and bodies. */
void app_bodies_turn(struct app *app);

/** Time at which app_bodies_turn() is needed; UINT64_MAX: never. */
uint64_t app_bodies_due_us(const struct app *app);

/** Register the body of a job. @return NULL: out of memory. */
struct app_body *app_body_expect(struct app *app, struct app_job *job,
				 const struct kvr_agent_request *r);

/** The request of the DISPATCH, without a body. */
const struct kvr_agent_request *app_body_request(const struct app_body *body);

/** Stop waiting for a body. NULL is allowed. */
void app_body_drop(struct app *app, struct app_body *body);

#endif
