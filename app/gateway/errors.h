/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_ERRORS_H
#define GW_ERRORS_H

/**
 * @file
 * What a client is told when a request fails: status, and JSON in the shape of the OpenAI API. One
 * table over the codes of the protocol, one over what the gateway itself finds. Pure, any thread.
 */

#include <stddef.h>

#include "kvr_client.h"

/** What the gateway itself has to say. */
enum gw_fault {
	GW_BAD_REQUEST,	   /**< 400: no JSON, or a field of the wrong type or range */
	GW_NO_ROUTE,	   /**< 404: no such path */
	GW_NO_METHOD,	   /**< 405 */
	GW_NO_MODEL,	   /**< 404: no pool serves that model */
	GW_NO_LEASE,	   /**< 404: /pick has not given that name, or long ago */
	GW_LEASE_GONE,	   /**< 410: what /pick has booked is over */
	GW_REQUEST_SLOW,   /**< 408: it has not come in whole in time */
	GW_BODY_TOO_LARGE, /**< 413 */
	GW_TOO_MANY,	   /**< 429: requests in flight of this process */
	GW_SOURCE_SHARE,   /**< 429: connections, requests or bytes of this address */
	GW_CLIENT_GONE,	   /**< 499: the client closed its side */
	GW_ENGINE_GARBAGE, /**< 502: the engine's answer is no HTTP response */
	GW_ENGINE_FAILED,  /**< 502: it ended in the middle, or before it began */
	GW_ROUTER_LOST,	   /**< 502: the router forgot the request, and it could not be repeated */
	GW_NO_ROUTER,	   /**< 503: no router answers */
	GW_TIMED_OUT,	   /**< 503: the request's time limit passed */
	GW_OUT_OF_MEMORY,  /**< 503 */
	GW_STOPPING,	   /**< 503: the gateway, and it lasted too long */
	GW_BODY_NOT_TAKEN, /**< 503: by the worker's agent, and too large for frames */
	GW_FULL, /**< 503: requests and answers that wait here take all the room there is */
	GW_READER_TOO_SLOW, /**< 499: the client did not read its stream */
	GW_FAULTS
};

struct gw_error {
	int status;	      /**< of HTTP */
	const char *type;     /**< "type" of the JSON */
	const char *code;     /**< "code" of the JSON; NULL: null */
	unsigned int retry_s; /**< Retry-After, seconds; 0: no such header */
};

/** What the gateway's own fault looks like; never NULL. */
const struct gw_error *gw_error_fault(enum gw_fault fault);

/** Words for it, when there are no better ones. */
const char *gw_error_text(enum gw_fault fault);

/**
 * What a refusal by the router looks like. @p retryable is that of the refusal: it overrules the
 * table's Retry-After. A code that is not known counts as 502.
 */
struct gw_error gw_error_code(unsigned int code, bool retryable);

/**
 * The same of the end of a request that was refused. What the engine of a prefill leg refuses as
 * its client's fault has the engine's status: the same request fails there again.
 */
struct gw_error gw_error_refused(const struct kvr_client_end *e);

/** Fault that stands for how a request ended, for all reasons but FINISHED, QUERIED, REJECTED. */
enum gw_fault gw_error_reason(enum kvr_client_reason reason);

/** The same in words, with those of the agent when there are some. @return @p buf. */
const char *gw_error_said(const struct kvr_client_end *e, char *buf, size_t size);

/**
 * {"error":{"message":...,"type":...,"param":null,"code":...}} into @p buf; a message that is no
 * UTF-8 or does not fit is left out. @return its length; @p size must be 256 or more.
 */
size_t gw_error_json(const struct gw_error *e, const char *message, char *buf, size_t size);

#endif
