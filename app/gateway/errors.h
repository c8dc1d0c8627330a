/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_ERRORS_H
#define GW_ERRORS_H

/**
 * @file
 * Errors for clients: status, and JSON in the form of the OpenAI API. One table for the codes of
 * the protocol, one for faults found by the gateway. Pure, any thread.
 */

#include <stddef.h>

#include "kvr_client.h"

/** Faults found by the gateway. */
enum gw_fault {
	GW_BAD_REQUEST,	    /**< 400: not JSON, or a field has a wrong type or range */
	GW_NO_ROUTE,	    /**< 404: unknown path */
	GW_NO_METHOD,	    /**< 405 */
	GW_NO_MODEL,	    /**< 404: no pool serves that model */
	GW_NO_LEASE,	    /**< 404: name not given by /pick, or long ago */
	GW_LEASE_GONE,	    /**< 410: a booking of /pick has ended */
	GW_REQUEST_SLOW,    /**< 408: not complete in time */
	GW_BODY_TOO_LARGE,  /**< 413 */
	GW_TOO_MANY,	    /**< 429: active requests of this process */
	GW_SOURCE_SHARE,    /**< 429: connections, requests or bytes of this address */
	GW_CLIENT_GONE,	    /**< 499: the client closed its side */
	GW_ENGINE_GARBAGE,  /**< 502: the engine's answer is not an HTTP response */
	GW_ENGINE_FAILED,   /**< 502: the answer is incomplete, or missing */
	GW_ROUTER_LOST,	    /**< 502: the router lost the request, and it could not be repeated */
	GW_NO_ROUTER,	    /**< 503: no router answers */
	GW_TIMED_OUT,	    /**< 503: the time limit of the request passed */
	GW_OUT_OF_MEMORY,   /**< 503 */
	GW_STOPPING,	    /**< 503: the gateway stops before the end of the request */
	GW_BODY_NOT_TAKEN,  /**< 503: not accepted by the worker's agent, and too large for the
			       router */
	GW_FULL,	    /**< 503: memory limit of requests and answers */
	GW_READER_TOO_SLOW, /**< 499: the client did not read its answer */
	GW_FAULTS
};

struct gw_error {
	int status;	      /**< HTTP status */
	const char *type;     /**< "type" of the JSON */
	const char *code;     /**< "code" of the JSON; NULL: null */
	unsigned int retry_s; /**< Retry-After in seconds; 0: none */
};

/** Error for a fault of the gateway; never NULL. */
const struct gw_error *gw_error_fault(enum gw_fault fault);

/** Default message of a fault. */
const char *gw_error_text(enum gw_fault fault);

/**
 * Error for a rejection by the router. @p retryable of the rejection overrides Retry-After of the
 * table. An unknown code counts as 502.
 */
struct gw_error gw_error_code(unsigned int code, bool retryable);

/**
 * The same for the end of a rejected request. If the engine of a prefill leg rejected it as an
 * error of the client, the status is the engine's: the same request would fail again.
 */
struct gw_error gw_error_refused(const struct kvr_client_end *e);

/** Fault for the end of a request, for all reasons but FINISHED, QUERIED, REJECTED. */
enum gw_fault gw_error_reason(enum kvr_client_reason reason);

/** Message for the same, with that of the agent if any. @return @p buf. */
const char *gw_error_message(const struct kvr_client_end *e, char *buf, size_t size);

/**
 * Print {"error":{"message":...,"type":...,"param":null,"code":...}} to @p buf; a message that is
 * not UTF-8 or does not fit is replaced. @return its length; @p size must be at least 256.
 */
size_t gw_error_json(const struct gw_error *e, const char *message, char *buf, size_t size);

#endif
