/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two routers in one EAL. Each gives its rings and pools the same names, which must be unique in a
 * process. The linker redirects these calls here, and each name gets a number in front. No program
 * looks the names up.
 */
#include "kvr_rings.h"
#include "pool_reuse.h"

#include <stdio.h>

#include <rte_hash.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

#define NAME 32u /* RTE_RING_NAMESIZE is the smallest limit, with room for a prefix of the EAL */

struct rte_ring *__real_rte_ring_create(const char *name, unsigned int count, int socket,
					unsigned int flags);
struct rte_ring *__wrap_rte_ring_create(const char *name, unsigned int count, int socket,
					unsigned int flags);
struct rte_ring *__real_rte_ring_create_elem(const char *name, unsigned int esize,
					     unsigned int count, int socket, unsigned int flags);
struct rte_ring *__wrap_rte_ring_create_elem(const char *name, unsigned int esize,
					     unsigned int count, int socket, unsigned int flags);
struct rte_mempool *__real_kvr_rings_pool(const char *name, unsigned int n, unsigned int size,
					  unsigned int cache, rte_mempool_obj_cb_t *init);
struct rte_mempool *__wrap_kvr_rings_pool(const char *name, unsigned int n, unsigned int size,
					  unsigned int cache, rte_mempool_obj_cb_t *init);
struct rte_mempool *__real_rte_mempool_create_empty(const char *name, unsigned int n,
						    unsigned int size, unsigned int cache,
						    unsigned int priv, int socket,
						    unsigned int flags);
struct rte_mempool *__wrap_rte_mempool_create_empty(const char *name, unsigned int n,
						    unsigned int size, unsigned int cache,
						    unsigned int priv, int socket,
						    unsigned int flags);
struct rte_mempool *__real_rte_pktmbuf_pool_create(const char *name, unsigned int n,
						   unsigned int cache, uint16_t priv, uint16_t room,
						   int socket);
struct rte_mempool *__wrap_rte_pktmbuf_pool_create(const char *name, unsigned int n,
						   unsigned int cache, uint16_t priv, uint16_t room,
						   int socket);
struct rte_mempool *__real_rte_pktmbuf_pool_create_by_ops(const char *name, unsigned int n,
							  unsigned int cache, uint16_t priv,
							  uint16_t room, int socket,
							  const char *ops);
struct rte_mempool *__wrap_rte_pktmbuf_pool_create_by_ops(const char *name, unsigned int n,
							  unsigned int cache, uint16_t priv,
							  uint16_t room, int socket,
							  const char *ops);
struct rte_hash *__real_rte_hash_create(const struct rte_hash_parameters *p);
struct rte_hash *__wrap_rte_hash_create(const struct rte_hash_parameters *p);

static const char *unique_name(char *out, const char *name)
{
	static unsigned int number;

	snprintf(out, NAME - 7, "%x.%s", number++ & 0xffffff, name);
	return out;
}

struct rte_ring *__wrap_rte_ring_create(const char *name, unsigned int count, int socket,
					unsigned int flags)
{
	char own[NAME];

	return __real_rte_ring_create(unique_name(own, name), count, socket, flags);
}

struct rte_ring *__wrap_rte_ring_create_elem(const char *name, unsigned int esize,
					     unsigned int count, int socket, unsigned int flags)
{
	char own[NAME];

	return __real_rte_ring_create_elem(unique_name(own, name), esize, count, socket, flags);
}

/* The functions that it calls make the name unique. */
struct rte_mempool *__wrap_kvr_rings_pool(const char *name, unsigned int n, unsigned int size,
					  unsigned int cache, rte_mempool_obj_cb_t *init)
{
	const struct pool_shape shape = {
		.init = init, .n = n, .size = size, .cache = cache, .socket = SOCKET_ID_ANY};
	struct rte_mempool *mp = pool_reuse_take(&shape);

	if (mp == NULL) {
		mp = __real_kvr_rings_pool(name, n, size, cache, init);
		pool_reuse_note(mp, &shape);
	}
	return mp;
}

struct rte_mempool *__wrap_rte_mempool_create_empty(const char *name, unsigned int n,
						    unsigned int size, unsigned int cache,
						    unsigned int priv, int socket,
						    unsigned int flags)
{
	char own[NAME];

	return __real_rte_mempool_create_empty(unique_name(own, name), n, size, cache, priv, socket,
					       flags);
}

struct rte_mempool *__wrap_rte_pktmbuf_pool_create(const char *name, unsigned int n,
						   unsigned int cache, uint16_t priv, uint16_t room,
						   int socket)
{
	const struct pool_shape shape = {
		.ops = "", .n = n, .size = room, .cache = cache, .priv = priv, .socket = socket};
	struct rte_mempool *mp = pool_reuse_take(&shape);
	char own[NAME];

	if (mp == NULL) {
		mp = __real_rte_pktmbuf_pool_create(unique_name(own, name), n, cache, priv, room,
						    socket);
		pool_reuse_note(mp, &shape);
	}
	return mp;
}

struct rte_mempool *__wrap_rte_pktmbuf_pool_create_by_ops(const char *name, unsigned int n,
							  unsigned int cache, uint16_t priv,
							  uint16_t room, int socket,
							  const char *ops)
{
	const struct pool_shape shape = {
		.ops = ops, .n = n, .size = room, .cache = cache, .priv = priv, .socket = socket};
	struct rte_mempool *mp = pool_reuse_take(&shape);
	char own[NAME];

	if (mp == NULL) {
		mp = __real_rte_pktmbuf_pool_create_by_ops(unique_name(own, name), n, cache, priv,
							   room, socket, ops);
		pool_reuse_note(mp, &shape);
	}
	return mp;
}

struct rte_hash *__wrap_rte_hash_create(const struct rte_hash_parameters *p)
{
	struct rte_hash_parameters own = *p;
	char name[NAME];

	own.name = unique_name(name, p->name);
	return __real_rte_hash_create(&own);
}
