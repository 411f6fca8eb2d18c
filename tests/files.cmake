focus_test(files_tests BOTH
  SOURCES data/durable_file_test.cpp data/safetensors_test.cpp data/store_test.cpp
          data/store_hostile_test.cpp data/checkpoint_folder_test.cpp
  NEEDS data GTest::gmock
  LABELS data)
