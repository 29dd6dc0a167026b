(CAST(:tenant AS TEXT) IS NULL OR tenant_id = :tenant) AND (CAST(:app AS TEXT) IS NULL OR app_id = :app)
