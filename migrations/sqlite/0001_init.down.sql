DROP TABLE IF EXISTS {schema}"{prefix}audit";

DROP TABLE IF EXISTS {schema}"{prefix}proposals";

-- Deletes every record, so that a key which was used can be used again, and every
-- lock and register, so that fencing tokens and revisions may go back.
DROP TABLE IF EXISTS {schema}"{prefix}limit_entries";

DROP TABLE IF EXISTS {schema}"{prefix}limits";

DROP TABLE IF EXISTS {schema}"{prefix}similar";

DROP TABLE IF EXISTS {schema}"{prefix}outbox_keys";

DROP TABLE IF EXISTS {schema}"{prefix}outbox";

DROP TABLE IF EXISTS {schema}"{prefix}sweeps";

DROP TABLE IF EXISTS {schema}"{prefix}interventions";

DROP TABLE IF EXISTS {schema}"{prefix}provider_events";

DROP TABLE IF EXISTS {schema}"{prefix}steps";

DROP TABLE IF EXISTS {schema}"{prefix}staged";

DROP TABLE IF EXISTS {schema}"{prefix}records";

DROP TABLE IF EXISTS {schema}"{prefix}tickets";

DROP TABLE IF EXISTS {schema}"{prefix}waiters";

DROP TABLE IF EXISTS {schema}"{prefix}registers";

DROP TABLE IF EXISTS {schema}"{prefix}locks";

DROP TABLE IF EXISTS {schema}"{prefix}floor";

DROP TABLE IF EXISTS {schema}"{prefix}servers";

DROP TABLE IF EXISTS {schema}"{prefix}schema";
