/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_FOLDERS_H
#define ROUTER_FOLDERS_H

/**
 * @file
 * The EAL's runtime folder, one for each file prefix: DPDK leaves it behind, whoever ends. A router
 * keeps a locked file in its own, goes with it, and removes those of routers that have died: they
 * have such a file, and nobody holds its lock or the EAL's. Folders of other programs have none and
 * are left alone. Start and stop only, main thread.
 */

#include <stdint.h>

#define FOLDERS_MARK "kvroute.lock"
#define FOLDERS_MOST 256u /* are removed at one start */

/** Before the EAL's start: hold the folder that it will take, when it is there from before.
 * @return 0, also when it cannot be held; -EBUSY: a router has it that lives. */
int folders_hold(const char *file_prefix);

/** After the EAL's start: mark the folder of this process, and remove those of the dead beside it.
 * What fails is left as it is. @return how many have been removed. */
uint32_t folders_start(void);

/** After the EAL's end: remove the own one. */
void folders_stop(void);

/** Hold the mark of @p folder. @return a descriptor, or -errno; -EWOULDBLOCK: another process has
 * it. */
int folders_claim(const char *folder);

/** Remove marked folders in @p base whose process is dead, at most @p most, but @p own (a name,
 * may be NULL). @return how many. */
uint32_t folders_sweep(const char *base, const char *own, uint32_t most);

#endif
