focus_test(autograd_tests BOTH
  SOURCES autograd/*_test.cpp autograd/*/*_test.cpp
  NEEDS autograd
  LABELS core)
focus_test(layers_tests BOTH
  SOURCES layers/*_test.cpp
  NEEDS layers
  LABELS core)
focus_test(optim_tests BOTH
  SOURCES optim/*_test.cpp
  NEEDS optim
  LABELS core)
focus_test(focus_tests BOTH
  SOURCES focus/adapters/lora/*_test.cpp focus/generation/*_test.cpp focus/method/*_test.cpp
    focus/method/*/*_test.cpp
  NEEDS focus
  LABELS core)
focus_test(training_tests
  SOURCES focus/evaluation/*_test.cpp focus/evaluation/recall/*_test.cpp
    focus/evaluation/report/*_test.cpp focus/evaluation/statistics/*_test.cpp
    focus/models/*_test.cpp focus/speed/*_test.cpp focus/training/*_test.cpp
    focus/training/compare/*_test.cpp
  NEEDS focus
  LABELS core)
focus_test(scores_tests
  SOURCES focus/evaluation/scores/*_test.cpp
  NEEDS focus
  LABELS core)
focus_test(baselines_tests BOTH
  SOURCES focus/adapters/baselines/*_test.cpp
  NEEDS focus
  LABELS core)
# Once more with the kernels of lesser machines; skipped where this one is lesser still.
foreach(simd avx2 baseline)
  foreach(program autograd_tests focus_tests)
    add_test(NAME ${program}_${simd} COMMAND ${program})
    set_tests_properties(${program}_${simd} PROPERTIES
      LABELS core ENVIRONMENT "${focus_test_environment};FOCUS_SIMD=${simd}"
      SKIP_REGULAR_EXPRESSION "FOCUS_SIMD")
  endforeach()
endforeach()
focus_test(focus_golden_tests BOTH
  SOURCES golden/focus_golden_test.cpp golden/summary_golden_test.cpp
  NEEDS focus
  LABELS golden)
focus_test(model_golden_tests BOTH
  SOURCES golden/arch_golden_test.cpp golden/training_golden_test.cpp
    golden/lora_golden_test.cpp golden/packing_golden_test.cpp golden/gguf_golden_test.cpp
    golden/block_rounding_golden_test.cpp
  NEEDS focus
  LABELS golden)
add_test(NAME one_precision COMMAND ${PROJECT_SOURCE_DIR}/tests/one_precision.sh ${CMAKE_NM}
  $<TARGET_OBJECTS:focus_data_same> $<TARGET_OBJECTS:focus_layers_same>)
set_tests_properties(one_precision PROPERTIES LABELS core SKIP_RETURN_CODE 77)
# The program must run on any machine of FOCUS_ARCH: AVX only in the kernels that are chosen at run
# time.
if(FOCUS_ARCH STREQUAL "x86-64-v2" AND NOT FOCUS_SANITIZE)
  add_test(NAME instruction_sets COMMAND ${PROJECT_SOURCE_DIR}/tests/instruction_sets.sh
    ${CMAKE_OBJDUMP} ${CMAKE_NM} $<TARGET_FILE:focus_autograd> $<TARGET_FILE:focus_data>
    $<TARGET_FILE:focus_layers> $<TARGET_FILE:focus_focus> $<TARGET_FILE:focus_optim>
    $<TARGET_FILE:focus_apps>)
  set_tests_properties(instruction_sets PROPERTIES LABELS core SKIP_RETURN_CODE 77)
  find_program(QEMU_X86_64 qemu-x86_64)
  if(QEMU_X86_64)
    foreach(name autograd_tests focus_golden_tests)
      add_test(NAME ${name}_without_avx COMMAND ${QEMU_X86_64} -cpu Nehalem $<TARGET_FILE:${name}>)
      set_tests_properties(${name}_without_avx PROPERTIES
        LABELS core ENVIRONMENT "OMP_NUM_THREADS=1" TIMEOUT 600)
    endforeach()
    add_test(NAME older_processor COMMAND ${QEMU_X86_64} -cpu core2duo $<TARGET_FILE:focus_program> --version)
    set_tests_properties(older_processor PROPERTIES LABELS core PASS_REGULAR_EXPRESSION "ISA level")
  else()
    message(STATUS "No qemu-x86_64: the tests on a machine without AVX are left out")
  endif()
endif()
focus_test(structure_tests
  SOURCES structure_test.cpp
  NEEDS autograd
  LABELS core)
# The C interface from C++, and its header as C.
add_library(focus_header_as_c OBJECT ${PROJECT_SOURCE_DIR}/tests/focus/c_interface/header.c)
target_include_directories(focus_header_as_c PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_options(focus_header_as_c PRIVATE -Wall -Wextra -Wpedantic -Werror)
set_target_properties(focus_header_as_c PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF)
focus_test(c_interface_tests
  SOURCES focus/c_interface/*_test.cpp
  NEEDS focus
  LABELS core)
target_link_libraries(c_interface_tests PRIVATE $<TARGET_OBJECTS:focus_c_interface>
  $<TARGET_OBJECTS:focus_header_as_c>)
